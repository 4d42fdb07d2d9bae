package client_test

import "kl/wire"

func lockInfo(id string) wire.LockInfo {
	return wire.LockInfo{ID: id, Operation: wire.OperationPush, Who: "ana@host"}
}
