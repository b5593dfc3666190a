package cli

import (
	"context"
	"fmt"
	"path"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// readRPCs are the calls that change nothing. The list names what is allowed,
// not what is forbidden: a call added to etcd later is refused until somebody
// has looked at it.
var readRPCs = map[string]bool{
	"/etcdserverpb.KV/Range":              true,
	"/etcdserverpb.KV/RangeStream":        true,
	"/etcdserverpb.Watch/Watch":           true,
	"/etcdserverpb.Lease/LeaseTimeToLive": true,
	"/etcdserverpb.Lease/LeaseLeases":     true,
	"/etcdserverpb.Cluster/MemberList":    true,
	"/etcdserverpb.Maintenance/Status":    true,
	"/etcdserverpb.Maintenance/Hash":      true,
	"/etcdserverpb.Maintenance/HashKV":    true,
	"/etcdserverpb.Maintenance/Snapshot":  true,
	"/etcdserverpb.Auth/AuthStatus":       true,
	"/etcdserverpb.Auth/Authenticate":     true,
	"/etcdserverpb.Auth/UserGet":          true,
	"/etcdserverpb.Auth/UserList":         true,
	"/etcdserverpb.Auth/RoleGet":          true,
	"/etcdserverpb.Auth/RoleList":         true,
	"/v3electionpb.Election/Leader":       true,
	"/v3electionpb.Election/Observe":      true,
	"/grpc.health.v1.Health/Check":        true,
	"/grpc.health.v1.Health/Watch":        true,
}

func allowed(method string, req any) error {
	if readRPCs[method] {
		return nil
	}
	switch r := req.(type) {
	case *pb.TxnRequest:
		if readOnlyTxn(r) {
			return nil
		}
	case *pb.AlarmRequest:
		if r.GetAction() == pb.AlarmRequest_GET {
			return nil
		}
	case *pb.DowngradeRequest:
		if r.GetAction() == pb.DowngradeRequest_VALIDATE {
			return nil
		}
	}
	return &Error{Code: Refused, Err: fmt.Errorf("%s would change the cluster, and --read-only is in force; nothing was sent", path.Base(method)),
		Hint: "leave --read-only (or ETCDCTL_PLUS_READ_ONLY, or the context's read-only) away to allow it"}
}

// readOnlyTxn tells whether neither branch of a transaction writes.
func readOnlyTxn(t *pb.TxnRequest) bool {
	for _, ops := range [][]*pb.RequestOp{t.GetSuccess(), t.GetFailure()} {
		for _, op := range ops {
			if inner := op.GetRequestTxn(); inner != nil && readOnlyTxn(inner) {
				continue
			}
			if op.GetRequestRange() == nil {
				return false
			}
		}
	}
	return true
}

func readOnlyUnary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if err := allowed(method, req); err != nil {
		return err
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

func readOnlyStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if err := allowed(method, nil); err != nil {
		return nil, err
	}
	return open(ctx, desc, cc, method, opts...)
}
