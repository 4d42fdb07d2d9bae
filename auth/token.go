// Package auth decides who may do what. It is pure: it makes and parses
// tokens, knows the roles and what each may do, and never looks anything up.
package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"regexp"
	"strings"
)

// Kind is what a credential is.
type Kind string

// The kinds of credentials and the prefixes of their secrets.
const (
	Automation Kind = "automation" // kl_env_…: belongs to one environment
	PAT        Kind = "pat"        // kl_pat_…: belongs to a user
	Control    Kind = "control"    // kl_ctl_…: the operator's or a user's, for the control API only
)

var prefixes = map[Kind]string{Automation: "kl_env_", PAT: "kl_pat_", Control: "kl_ctl_"}

// Prefix is how secrets of this kind begin.
func (k Kind) Prefix() string { return prefixes[k] }

var enc = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// secretLen is the length of 256 bits and a 32-bit checksum in base 32.
const secretLen = 58

// NewSecret makes a secret: the kind's prefix, 256 random bits and a checksum,
// so that a cut or mistyped one is recognised without looking it up.
func NewSecret(k Kind) string {
	var b [36]byte
	_, _ = rand.Read(b[:32]) // never fails: crypto/rand aborts the program instead
	sum := crc32.ChecksumIEEE(append([]byte(prefixes[k]), b[:32]...))
	b[32], b[33], b[34], b[35] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
	return prefixes[k] + enc.EncodeToString(b[:])
}

// KindOf returns the kind of a well-formed secret, and false for anything else.
func KindOf(secret string) (Kind, bool) {
	for _, k := range [...]Kind{Automation, PAT, Control} {
		rest, ok := strings.CutPrefix(secret, k.Prefix())
		if !ok || len(rest) != secretLen {
			continue
		}
		var b [40]byte
		n, err := enc.Decode(b[:], []byte(rest))
		if err != nil || n != 36 {
			return "", false
		}
		var text [7 + 32]byte
		sum := crc32.ChecksumIEEE(append(append(text[:0], k.Prefix()...), b[:32]...))
		if binary.BigEndian.Uint32(b[32:]) != sum {
			return "", false
		}
		return k, true
	}
	return "", false
}

// Hash is the form in which secrets are stored and looked up. Looking a
// secret up by its hash takes no time that depends on how much of it is right.
func Hash(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }

const idAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789"

// NewID makes an identifier: prefix and twelve random letters and digits.
func NewID(prefix string) string {
	var b [12]byte
	_, _ = rand.Read(b[:])
	for i := range b {
		// 256 is no multiple of 36: the bias is 4 in 256 and identifiers are no secrets
		b[i] = idAlphabet[int(b[i])%len(idAlphabet)]
	}
	return prefix + string(b[:])
}

// NewRequestID makes the identifier of a request: req_ and 16 hex digits.
func NewRequestID() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return "req_" + hex.EncodeToString(b[:])
}

// secretText is a secret, also one that is cut or has a character too many.
var secretText = regexp.MustCompile(`kl_(?:env|pat|ctl)_[A-Za-z0-9]{20,}`)

// Redact takes secrets out of a text, which people put where they do not belong,
// and leaves their prefix.
func Redact(text string) string {
	if !strings.Contains(text, "kl_") {
		return text
	}
	return secretText.ReplaceAllStringFunc(text, func(s string) string { return s[:len("kl_env_")] + "…" })
}
