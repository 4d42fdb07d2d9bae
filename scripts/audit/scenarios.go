package main

import "context"

// scenario is one situation of the audit. One without play is made from the
// others' records.
type scenario struct {
	id, title string
	long      bool // waits for checkpoints, and plays beside the others
	play      func(context.Context, *audit, *record) error
}

// scenarios are all of them, in the report's order.
var scenarios = []scenario{
	{id: "1A", title: "An automation token works", play: automationToken},
	{id: "1B", title: "A personal access token works once it is granted", play: personalToken},
	{id: "2A", title: "A personal access token without a grant is refused", play: withoutGrant},
	{id: "2B", title: "Another workspace's id is refused", play: wrongWorkspace},
	{id: "2C", title: "An environment's id that does not exist is refused", play: wrongEnvironment},
	{id: "2D", title: "A revoked token stops at once; the user's control token goes on", play: revokedToken},
	{id: "3A", title: "Access ends with the membership, with no token changed", play: memberLeaves},
	{id: "3B", title: "Deleting a personal access token cleans up its grants", play: tokenDeleted},
	{id: "4A", title: "The documented path works", play: documentedPath},
	{id: "4B", title: "A slug in place of the id fails understandably", play: slugForID},
	{id: "5A", title: "A large apply: counts move only at checkpoints, and no conflict with itself", long: true, play: largeApply},
	{id: "5B", title: "A large destroy over several checkpoints: no 409", long: true, play: largeDestroy},
	{id: "6A", title: "Disjoint applies at the same time both succeed", play: disjointApplies},
	{id: "6B", title: "Overlapping applies: one succeeds, one is a 409 that says with what", play: overlappingApplies},
	{id: "7", title: "The quota beforehand: headroom, a soft warning, a hard failure", play: quotaBeforehand},
	{id: "7A", title: "A count exactly at the hard limit passes, one more does not", play: quotaBoundary},
	{id: "7B", title: "A spike for a moment: the message tells the quota from other causes", play: quotaSpike},
	{id: "7C", title: "The environment's limit counts all states but archived ones", play: quotaOfEnvironment},
	{id: "8A", title: "A suspended workspace: no writes, no locks, reading goes on", play: suspended},
	{id: "8B", title: "An archived state: the same", play: archived},
	{id: "8C", title: "A restored state is what it was, and goes on", play: restored},
	{id: "F1", title: "kl apply --orchestrated in parallel, by file and by target", play: orchestratedApplies},
	{id: "F2", title: "terraform apply and kl apply on the same resource: one 409 and errored.tfstate", play: mixedApplies},
	{id: "F3", title: "A reservation conflict, resolved with kl apply abort", play: reservationConflict},
	{id: "F4", title: "Rollback of the whole state and of one resource, each as a new version", play: rollbacks},
	{id: "F5", title: "kl query shows to each credential what it may read", play: queryScope},
	{id: "9", title: "The error surface: every failure that was met"},
	{id: "10", title: "The summary"},
}

func ids() []string {
	out := make([]string, len(scenarios))
	for i, s := range scenarios {
		out[i] = s.id
	}
	return out
}

// item is a resource that is made at once.
func item(name, input string) string {
	return "\nresource \"terraform_data\" \"" + name + "\" {\n  input = " + input + "\n}\n"
}

// gated is a resource that says that it has begun, and takes until it may end
// or its directory is gone.
func gated(name, input string) string {
	return `
resource "terraform_data" "` + name + `" {
  input            = ` + input + `
  triggers_replace = ` + input + `
  provisioner "local-exec" {
    command = "touch $GATE/` + name + `.begun; while [ -d $GATE ] && [ ! -e $GATE/` + name + `.open ]; do sleep 0.05; done"
  }
}
`
}

// httpBackend takes its settings from the environment.
const httpBackend = "terraform {\n  backend \"http\" {}\n}\n"
