package dbfile

import (
	"context"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/pkg/v3/adt"
)

// permissions are the users and roles of a file. Whether a request was allowed is
// decided when it is applied, not when it is written to the log.
type permissions struct {
	enabled  bool
	revision uint64
	users    map[string]*rights
}

// rights are what a user may do. The trees are etcd's, filled as etcd fills them: what it
// answers for a range that ends before it starts follows from how they are searched.
type rights struct {
	root        bool
	read, write adt.IntervalTree
}

// user is who sent a request; nothing is asked of anybody while authentication is
// off.
type user struct {
	unasked bool
	rights  *rights // nil: none
	admin   bool    // has the role root, whenever the request was made
}

const rootRole = "root"

func readPermissions(ctx context.Context, s *Source) (*permissions, error) {
	p := &permissions{users: map[string]*rights{}}
	var err error
	if p.enabled, err = s.AuthEnabled(ctx); err != nil || !p.enabled {
		return p, err
	}
	roles := map[string]*authpb.Role{}
	for _, b := range []struct {
		bucket string
		take   func(it item) error
	}{
		{bucketAuth, func(it item) error {
			if string(it.key) == "authRevision" {
				p.revision = uint64Of(it.value)
			}
			return nil
		}},
		{"authRoles", func(it item) error {
			r := &authpb.Role{}
			if err := proto.Unmarshal(it.value, r); err != nil {
				return s.pager.corrupt(it.page, "role %s does not decode", describeKey(it.key))
			}
			roles[string(it.key)] = r
			return nil
		}},
		{"authUsers", func(it item) error {
			u := &authpb.User{}
			if err := proto.Unmarshal(it.value, u); err != nil {
				return s.pager.corrupt(it.page, "user %s does not decode", describeKey(it.key))
			}
			p.users[string(it.key)] = rightsOf(u, roles)
			return nil
		}},
	} {
		if err := s.each(ctx, b.bucket, b.take); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func rightsOf(u *authpb.User, roles map[string]*authpb.Role) *rights {
	r := &rights{read: adt.NewIntervalTree(), write: adt.NewIntervalTree()}
	for _, name := range u.Roles {
		if name == rootRole {
			r.root = true
		}
		for _, perm := range roles[name].GetKeyPermission() {
			i := affine(perm.Key, perm.RangeEnd)
			if perm.PermType == authpb.Permission_READ || perm.PermType == authpb.Permission_READWRITE {
				r.read.Insert(i, struct{}{})
			}
			if perm.PermType == authpb.Permission_WRITE || perm.PermType == authpb.Permission_READWRITE {
				r.write.Insert(i, struct{}{})
			}
		}
	}
	return r
}

// affine is what etcd selects by key and end, in the terms of its trees: the empty end is
// behind all keys.
func affine(key, end []byte) adt.Interval {
	switch {
	case len(end) == 0:
		return adt.NewBytesAffinePoint(key)
	case len(end) == 1 && end[0] == 0:
		end = nil
	}
	return adt.NewBytesAffineInterval(key, end)
}

// covers tells whether all that key and end select is allowed by t.
func covers(t adt.IntervalTree, key, end []byte) bool {
	if len(end) == 0 {
		return t.Intersects(affine(key, nil))
	}
	return t.Contains(affine(key, end))
}

// user returns who a request says it is from. One that was made before the last
// change of users or roles has no rights.
func (p *permissions) user(h *pb.RequestHeader) user {
	if !p.enabled {
		return user{unasked: true}
	}
	r := p.users[h.GetUsername()]
	u := user{admin: r != nil && r.root}
	if h.GetAuthRevision() != 0 && h.GetAuthRevision() >= p.revision {
		u.rights = r
	}
	return u
}

func (u user) may(key, end []byte, set func(*rights) adt.IntervalTree) bool {
	switch {
	case u.unasked:
		return true
	case u.rights == nil:
		return false
	}
	return u.rights.root || covers(set(u.rights), key, end)
}

func reading(r *rights) adt.IntervalTree { return r.read }
func writing(r *rights) adt.IntervalTree { return r.write }

// mayPut: the key, the old value when it is asked for, and all keys of the lease.
func (a *applier) mayPut(u user, p *pb.PutRequest) bool {
	return u.may(p.Key, nil, writing) && (p.Lease == 0 || a.mayRevoke(u, p.Lease)) && (!p.PrevKv || u.may(p.Key, nil, reading))
}

// mayRevoke: all keys of the lease.
func (a *applier) mayRevoke(u user, lease int64) bool {
	if u.unasked || u.admin {
		return true
	}
	if _, ok := a.leases[lease]; !ok {
		return true
	}
	for key := range a.members[lease] {
		if !u.may([]byte(key), nil, writing) {
			return false
		}
	}
	return true
}

func (a *applier) mayDelete(u user, d *pb.DeleteRangeRequest) bool {
	return u.may(d.Key, d.RangeEnd, writing) && (!d.PrevKv || u.may(d.Key, d.RangeEnd, reading))
}

// mayTxn: everything on both branches.
func (a *applier) mayTxn(u user, t *pb.TxnRequest) bool {
	if u.unasked {
		return true
	}
	for _, c := range t.Compare {
		if !u.may(c.Key, c.RangeEnd, reading) {
			return false
		}
	}
	for _, ops := range [][]*pb.RequestOp{t.Success, t.Failure} {
		for _, op := range ops {
			ok := true
			switch {
			case op.GetRequestRange() != nil:
				ok = u.may(op.GetRequestRange().Key, op.GetRequestRange().RangeEnd, reading)
			case op.GetRequestPut() != nil:
				ok = a.mayPut(u, op.GetRequestPut())
			case op.GetRequestDeleteRange() != nil:
				ok = a.mayDelete(u, op.GetRequestDeleteRange())
			case op.GetRequestTxn() != nil:
				ok = a.mayTxn(u, op.GetRequestTxn())
			}
			if !ok {
				return false
			}
		}
	}
	return true
}
