package tfstate

// Info is what Sniff found out about a document.
type Info struct {
	Members          uint16 // TopVersion and so on: which of them occur
	Version          int64
	HasVersion       bool // version is a whole number
	Serial           uint64
	HasSerial        bool // serial is a whole number
	SerialStart      int  // where the serial's value begins in the document, if it has one
	SerialEnd        int  // and where it ends
	Lineage          string
	TerraformVersion string
	Encrypted        bool // as OpenTofu encrypts states: version, resources and so on are inside
	Ambiguous        bool // one of the members occurs twice
}

// Sniff validates a whole document as JSON, without asking more of it than to be an object, and says what it is. It
// returns a *SyntaxError, or a *ShapeError when the document is not an object. Where a member occurs twice, the last
// one counts, as in Terraform's reader.
func Sniff(b []byte) (Info, error) {
	var info Info
	i, err := openDocument(b, 0)
	if err != nil {
		return Info{}, err
	}
	for first := true; ; first = false {
		name, value, closed, f := nextMember(b, i, first)
		if f != ok {
			return Info{}, syntaxError(b, value, f)
		}
		if closed {
			i = value
			break
		}
		if i, f = skipValue(b, value, depthTop); f != ok {
			return Info{}, syntaxError(b, i, f)
		}
		bit := topMember(name)
		info.Ambiguous = info.Ambiguous || info.Members&bit != 0
		info.Members |= bit
		switch bit {
		case TopVersion:
			n, whole := unsigned(b[value:i])
			info.HasVersion = whole && n <= 1<<63-1
			info.Version = 0
			if info.HasVersion {
				info.Version = int64(n)
			}
		case TopSerial:
			info.SerialStart, info.SerialEnd = value, i
			info.Serial, info.HasSerial = unsigned(b[value:i])
			if !info.HasSerial {
				info.Serial = 0
			}
		case TopLineage:
			info.Lineage = text(b[value:i])
		case TopTerraformVersion:
			info.TerraformVersion = text(b[value:i])
		case TopEncryptionVersion:
			info.Encrypted = text(b[value:i]) != "" // what OpenTofu itself goes by
		}
	}
	if i = space(b, i); i < len(b) {
		return Info{}, syntaxError(b, i, failToken)
	}
	return info, nil
}

// text decodes a valid JSON value that is a string; others are empty.
func text(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	return decode(raw[1:len(raw)-1], "")
}
