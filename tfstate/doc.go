// Package tfstate reads Terraform and OpenTofu state documents of format version 4 as bytes.
//
// A Scanner walks a document from left to right and reports its elements: root outputs, resources, resource
// instances and check results, each with the span of bytes it occupies. It is strict (it accepts exactly the JSON
// that encoding/json accepts) and it can stop and go on: every Token that may begin a chunk carries the Context in
// force just before it, and a scan that is Reset to that offset and Context reports exactly what a scan of the whole
// document reports from there on. The store relies on that to look only at the stretches of a body that changed.
//
// Nothing is converted: numbers stay text, unknown members stay where they are, and only the few strings that make
// up an address are decoded.
//
// Member names are matched the way Terraform's own reader matches them, with encoding/json: escapes are resolved,
// and letters match whatever their case.
package tfstate
