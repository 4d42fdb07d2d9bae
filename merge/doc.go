// Package merge joins two states that grew out of one: the head, which is what others have written meanwhile, and ours,
// which a writer sends now. It works on elements (resource instances, root outputs, check results), each as a whole.
//
// Item.Verdict decides what becomes of one element, by content hashes alone: of what the writer saw before, of the head
// and of ours. The bytes that the writer saw are not needed.
//
// Build writes the merged document: the head's bytes with edits at the spans of the elements that ours changed. All else
// stays as the head has it: white space, order, members that the format does not define, the texts of numbers. What
// comes from ours is laid out as the head is. Only the stretches in which the two documents differ are read.
package merge
