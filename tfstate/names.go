package tfstate

import (
	"strings"
	"unicode/utf8"
)

// Bits of Context.Top, Head.Seen and Info.Members: members of the document. The values are part of kl's file format;
// new ones go at the end.
const (
	TopVersion uint16 = 1 << iota
	TopTerraformVersion
	TopSerial
	TopLineage
	TopOutputs
	TopResources
	TopCheckResults
	TopEncryptedData
	TopEncryptionVersion
	TopMeta
)

// Bits of Context.Res: members of a resource. The values are part of kl's file format; new ones go at the end.
const (
	ResModule uint16 = 1 << iota
	ResMode
	ResType
	ResName
	ResProvider
	ResEach
	ResInstances
)

const resIdentity = ResModule | ResMode | ResType | ResName

// Members of an instance that the format defines. These bits are never stored.
const (
	instIndexKey uint32 = 1 << iota
	instDeposed
	instStatus
	instSchemaVersion
	instAttributes
	instAttributesFlat
	instSensitiveAttributes
	instIdentitySchemaVersion
	instIdentity
	instPrivate
	instDependencies
	instDependsOn
	instCreateBeforeDestroy
	instSkipDestroy
	instProvider
)

// Names in the order of their bits.
var (
	topNames = [...]string{
		"version", "terraform_version", "serial", "lineage", "outputs", "resources", "check_results",
		"encrypted_data", "encryption_version", "meta",
	}
	resNames  = [...]string{"module", "mode", "type", "name", "provider", "each", "instances"}
	instNames = [...]string{
		"index_key", "deposed", "status", "schema_version", "attributes", "attributes_flat", "sensitive_attributes",
		"identity_schema_version", "identity", "private", "dependencies", "depends_on", "create_before_destroy",
		"skip_destroy", "provider",
	}
)

func topMember(name []byte) uint16 {
	switch string(name) {
	case "version":
		return TopVersion
	case "terraform_version":
		return TopTerraformVersion
	case "serial":
		return TopSerial
	case "lineage":
		return TopLineage
	case "outputs":
		return TopOutputs
	case "resources":
		return TopResources
	case "check_results":
		return TopCheckResults
	}
	return uint16(folded(name, topNames[:]))
}

func resMember(name []byte) uint16 {
	switch string(name) {
	case "module":
		return ResModule
	case "mode":
		return ResMode
	case "type":
		return ResType
	case "name":
		return ResName
	case "provider":
		return ResProvider
	case "instances":
		return ResInstances
	}
	return uint16(folded(name, resNames[:]))
}

func instMember(name []byte) uint32 {
	switch string(name) {
	case "index_key":
		return instIndexKey
	case "schema_version":
		return instSchemaVersion
	case "attributes":
		return instAttributes
	case "sensitive_attributes":
		return instSensitiveAttributes
	case "identity_schema_version":
		return instIdentitySchemaVersion
	case "private":
		return instPrivate
	case "dependencies":
		return instDependencies
	case "create_before_destroy":
		return instCreateBeforeDestroy
	}
	return folded(name, instNames[:])
}

// folded finds the name among names as encoding/json does for a struct: after escapes are resolved, whatever the case.
func folded(name []byte, names []string) uint32 {
	raw := string(name)
	for _, c := range name {
		if c == '\\' || c >= utf8.RuneSelf {
			raw = decode(name, "")
			break
		}
	}
	for i, known := range names {
		if strings.EqualFold(raw, known) {
			return 1 << i
		}
	}
	return 0
}
