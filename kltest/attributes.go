package kltest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"kl/tfstate"
)

// object is a JSON object whose members stay in order.
type object []struct {
	name  string
	value any
}

type list []any

// number is a JSON number as text.
type number string

// stateType is a resource type with a maker of its attributes. seed is the same for all revisions of an instance.
type stateType struct {
	name       string
	attributes func(r *rand.Rand, id string, revision int) object
	sensitive  []string
}

var stateTypes = [...]stateType{
	{"aws_instance", instanceAttributes, nil},
	{"aws_security_group_rule", ruleAttributes, nil},
	{"aws_iam_policy", policyAttributes, nil},
	{"aws_s3_bucket", bucketAttributes, nil},
	{"aws_db_instance", databaseAttributes, []string{"password", "username"}},
	{"kubernetes_config_map_v1", configMapAttributes, nil},
}

var (
	stateKeys  = [...]string{"eu-west-1", "web/front", "a.b", "Zürich ", "x<y&z", `q"uote`, "team-"}
	stateWords = [...]string{"alpha", "bravo", "cargo", "delta", "ember", "fjord", "gamma", "harbor", "indigo", "jade"}
)

func providerOf(typ string) string {
	name, _, _ := strings.Cut(typ, "_")
	return fmt.Sprintf("provider[\"registry.terraform.io/hashicorp/%s\"]", name)
}

func (in *stateInstance) render(r *stateResource) []byte {
	rng := rand.New(rand.NewPCG(uint64(in.number), 0x7374))
	kind := stateTypes[0]
	for _, t := range stateTypes {
		if t.name == r.Type {
			kind = t
		}
	}
	id := fmt.Sprintf("%s-%08x%08x", r.Type[strings.LastIndex(r.Type, "_")+1:], in.number, rng.Uint32())
	var o object
	add := func(name string, value any) {
		o = append(o, struct {
			name  string
			value any
		}{name, value})
	}
	switch in.key.Kind {
	case tfstate.KeyInt:
		add("index_key", number(in.key.Text))
	case tfstate.KeyString:
		add("index_key", in.key.Text)
	case tfstate.KeyNone:
	}
	if in.deposed != "" {
		add("deposed", in.deposed)
	}
	add("schema_version", number(strconv.Itoa(len(r.Type)%3)))
	add("attributes", kind.attributes(rng, id, in.revision))
	paths := list{}
	for _, name := range kind.sensitive {
		paths = append(paths, list{object{{"type", "get_attr"}, {"value", name}}})
	}
	add("sensitive_attributes", paths)
	add("identity_schema_version", number("0"))
	if r.Mode == tfstate.ModeManaged {
		add("private", base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"schema_version":"1","timeout":%d}`, rng.Uint64())))
	}
	if len(in.deps) > 0 {
		deps := make(list, len(in.deps))
		for i, d := range in.deps {
			deps[i] = d
		}
		add("dependencies", deps)
	}
	var b bytes.Buffer
	writeJSON(&b, o, 8)
	return bytes.Clone(b.Bytes())
}

func (s *State) outputs() object {
	return object{
		{"endpoint", object{{"value", fmt.Sprintf("https://app.example.com/?a=1&v=%d", s.version)}, {"type", "string"}}},
		{"password", object{{"value", fmt.Sprintf("pw-%08x", s.made)}, {"type", "string"}, {"sensitive", true}}},
		{"subnets", object{{"value", list{"subnet-1", "subnet-2"}}, {"type", list{"tuple", list{"string", "string"}}}}},
	}
}

func (s *State) checks() any {
	if s.instances < 2 {
		return nil
	}
	check := func(name string) object {
		addr := "var." + name
		return object{
			{"object_kind", "var"},
			{"config_addr", addr},
			{"status", "pass"},
			{"objects", list{object{{"object_addr", addr}, {"status", "pass"}}}},
		}
	}
	return list{check("region"), check("size")}
}

func phrase(r *rand.Rand, n int) string {
	words := make([]string, n)
	for i := range words {
		words[i] = stateWords[r.IntN(len(stateWords))]
	}
	return strings.Join(words, " ")
}

func arn(service, id string) string {
	return "arn:aws:" + service + ":eu-west-1:123456789012:" + id
}

func tags(r *rand.Rand, revision int) object {
	return object{
		{"CostCenter", strconv.Itoa(1000 + r.IntN(9000))},
		{"Environment", "production"},
		{"ManagedBy", "terraform"},
		{"Owner", phrase(r, 2)},
		{"Revision", strconv.Itoa(revision)},
	}
}

func instanceAttributes(r *rand.Rand, id string, revision int) object {
	tag := tags(r, revision)
	return object{
		{"ami", fmt.Sprintf("ami-%017x", r.Uint64()>>4)},
		{"arn", arn("ec2", "instance/"+id)},
		{"associate_public_ip_address", r.IntN(2) == 0},
		{"availability_zone", "eu-west-1" + string(rune('a'+r.IntN(3)))},
		{"capacity_reservation_specification", list{object{
			{"capacity_reservation_preference", "open"}, {"capacity_reservation_target", list{}},
		}}},
		{"cpu_core_count", number(strconv.Itoa(1 << r.IntN(6)))},
		{"credit_specification", list{object{{"cpu_credits", "unlimited"}}}},
		{"disable_api_termination", false},
		{"ebs_block_device", list{}},
		{"ebs_optimized", true},
		{"get_password_data", false},
		{"iam_instance_profile", phrase(r, 1)},
		{"id", id},
		{"instance_state", "running"},
		{"instance_type", "t3.medium"},
		{"ipv6_addresses", list{}},
		{"key_name", nil},
		{"launch_template", list{}},
		{"metadata_options", list{object{
			{"http_endpoint", "enabled"},
			{"http_put_response_hop_limit", number("1")},
			{"http_tokens", "required"},
			{"instance_metadata_tags", "disabled"},
		}}},
		{"monitoring", revision%2 == 1},
		{"private_ip", fmt.Sprintf("10.%d.%d.%d", r.IntN(256), r.IntN(256), r.IntN(256))},
		{"root_block_device", list{object{
			{"delete_on_termination", true},
			{"device_name", "/dev/xvda"},
			{"encrypted", true},
			{"iops", number("3000")},
			{"tags", object{}},
			{"volume_id", fmt.Sprintf("vol-%017x", r.Uint64()>>4)},
			{"volume_size", number(strconv.Itoa(8 + revision))},
			{"volume_type", "gp3"},
		}}},
		{"subnet_id", fmt.Sprintf("subnet-%017x", r.Uint64()>>4)},
		{"tags", tag},
		{"tags_all", tag},
		{"timeouts", nil},
		{"user_data", "#!/bin/sh\nset -eu\necho \"" + phrase(r, 6) + "\" > /etc/motd && systemctl restart <svc>\n"},
		{"vpc_security_group_ids", list{fmt.Sprintf("sg-%017x", r.Uint64()>>4)}},
	}
}

func ruleAttributes(r *rand.Rand, id string, revision int) object {
	return object{
		{"cidr_blocks", list{fmt.Sprintf("10.%d.0.0/16", r.IntN(256)), "192.168.0.0/16"}},
		{"description", phrase(r, 8) + " r" + strconv.Itoa(revision)},
		{"from_port", number(strconv.Itoa(r.IntN(65536)))},
		{"id", id},
		{"ipv6_cidr_blocks", nil},
		{"prefix_list_ids", list{}},
		{"protocol", "tcp"},
		{"security_group_id", fmt.Sprintf("sg-%017x", r.Uint64()>>4)},
		{"self", false},
		{"source_security_group_id", nil},
		{"timeouts", nil},
		{"to_port", number(strconv.Itoa(r.IntN(65536)))},
		{"type", "ingress"},
	}
}

func policyAttributes(r *rand.Rand, id string, revision int) object {
	tag := tags(r, revision)
	statements := make([]map[string]any, 3)
	for i := range statements {
		statements[i] = map[string]any{
			"Sid": phrase(r, 1), "Effect": "Allow", "Resource": arn("s3", phrase(r, 1)+"/*"),
			"Action":    []string{"s3:Get*", "s3:List*", "kms:Decrypt"},
			"Condition": map[string]any{"StringLike": map[string]string{"aws:PrincipalTag/team": phrase(r, 1)}},
		}
	}
	policy, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": statements})
	if err != nil {
		panic(err) // strings only
	}
	return object{
		{"arn", arn("iam", "policy/"+id)},
		{"attachment_count", number(strconv.Itoa(revision))},
		{"description", phrase(r, 12)},
		{"id", id},
		{"name", phrase(r, 1)},
		{"name_prefix", ""},
		{"path", "/"},
		{"policy", string(policy)},
		{"policy_id", fmt.Sprintf("ANPA%016X", r.Uint64())},
		{"tags", tag},
		{"tags_all", tag},
	}
}

func bucketAttributes(r *rand.Rand, id string, revision int) object {
	tag := tags(r, revision)
	return object{
		{"acceleration_status", ""},
		{"acl", nil},
		{"arn", arn("s3", id)},
		{"bucket", id},
		{"bucket_domain_name", id + ".s3.amazonaws.com"},
		{"cors_rule", list{}},
		{"force_destroy", false},
		{"grant", list{object{
			{"id", fmt.Sprintf("%016x%016x", r.Uint64(), r.Uint64())},
			{"permissions", list{"FULL_CONTROL"}},
			{"type", "CanonicalUser"},
			{"uri", ""},
		}}},
		{"hosted_zone_id", "Z1BKCTXD74EZPE"},
		{"id", id},
		{"lifecycle_rule", list{object{
			{"abort_incomplete_multipart_upload_days", number("7")},
			{"enabled", true},
			{"expiration", list{object{{"days", number(strconv.Itoa(30 + revision))}, {"expired_object_delete_marker", false}}}},
			{"id", phrase(r, 1)},
			{"prefix", "logs/"},
			{"tags", nil},
			{"transition", list{}},
		}}},
		{"logging", list{}},
		{"object_lock_enabled", false},
		{"region", "eu-west-1"},
		{"request_payer", "BucketOwner"},
		{"server_side_encryption_configuration", list{object{{"rule", list{object{
			{"apply_server_side_encryption_by_default", list{object{
				{"kms_master_key_id", arn("kms", "key/"+phrase(r, 1))}, {"sse_algorithm", "aws:kms"},
			}}},
			{"bucket_key_enabled", true},
		}}}}}},
		{"tags", tag},
		{"tags_all", tag},
		{"versioning", list{object{{"enabled", true}, {"mfa_delete", false}}}},
		{"website", list{}},
	}
}

func databaseAttributes(r *rand.Rand, id string, revision int) object {
	tag := tags(r, revision)
	return object{
		{"address", id + ".rds.amazonaws.com"},
		{"allocated_storage", number(strconv.Itoa(20 + revision))},
		{"apply_immediately", false},
		{"arn", arn("rds", "db:"+id)},
		{"backup_retention_period", number("14")},
		{"backup_window", "03:00-04:00"},
		{"ca_cert_identifier", "rds-ca-rsa2048-g1"},
		{"db_subnet_group_name", phrase(r, 1)},
		{"deletion_protection", true},
		{"enabled_cloudwatch_logs_exports", list{"postgresql", "upgrade"}},
		{"endpoint", id + ".rds.amazonaws.com:5432"},
		{"engine", "postgres"},
		{"engine_version", "16.3"},
		{"id", id},
		{"instance_class", "db.t4g.medium"},
		{"latest_restorable_time", fmt.Sprintf("2025-01-01T00:00:%02dZ", revision%60)},
		{"maintenance_window", "sun:04:00-sun:05:00"},
		{"max_allocated_storage", number("9007199254740993")},
		{"multi_az", true},
		{"parameter_group_name", "default.postgres16"},
		{"password", fmt.Sprintf("s3cret-%016x", r.Uint64())},
		{"port", number("5432")},
		{"storage_throughput", number("1.25e2")},
		{"tags", tag},
		{"tags_all", tag},
		{"timeouts", nil},
		{"username", phrase(r, 1)},
		{"vpc_security_group_ids", list{fmt.Sprintf("sg-%017x", r.Uint64()>>4)}},
	}
}

func configMapAttributes(r *rand.Rand, id string, revision int) object {
	var yaml strings.Builder
	for i := range 24 {
		fmt.Fprintf(&yaml, "  %s_%d: \"%s\"\n", phrase(r, 1), i, phrase(r, 4))
	}
	return object{
		{"binary_data", object{}},
		{"data", object{{"config.yaml", "settings:\n" + yaml.String()}, {"revision", strconv.Itoa(revision)}}},
		{"id", "default/" + id},
		{"immutable", false},
		{"metadata", list{object{
			{"annotations", object{{"note", "Größe 10 µm ✓ 😀"}}},
			{"generate_name", ""},
			{"generation", number("0")},
			{"labels", object{{"app.kubernetes.io/name", phrase(r, 1)}}},
			{"name", id},
			{"namespace", "default"},
			{"resource_version", strconv.Itoa(r.IntN(1 << 30))},
			{"uid", fmt.Sprintf("%016x%016x", r.Uint64(), r.Uint64())},
		}}},
	}
}

// writeJSON writes v as encoding/json indents it, with its first line at no indentation and the others below margin.
func writeJSON(b *bytes.Buffer, v any, margin int) {
	line := func(n int) {
		b.WriteByte('\n')
		for range n {
			b.WriteByte(' ')
		}
	}
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case number:
		b.WriteString(string(v))
	case string:
		writeString(b, v)
	case list:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			line(margin + 2)
			writeJSON(b, e, margin+2)
		}
		if len(v) > 0 {
			line(margin)
		}
		b.WriteByte(']')
	case object:
		b.WriteByte('{')
		for i, m := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			line(margin + 2)
			writeString(b, m.name)
			b.WriteString(": ")
			writeJSON(b, m.value, margin+2)
		}
		if len(v) > 0 {
			line(margin)
		}
		b.WriteByte('}')
	default:
		panic(fmt.Sprintf("kltest: no JSON for %T", v))
	}
}

func writeString(b *bytes.Buffer, s string) {
	text, err := json.Marshal(s) // escapes <, > and & as Terraform does
	if err != nil {
		panic(err)
	}
	b.Write(text)
}
