package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/etcdctl-plus/etcdctl-plus/commands/config"
)

// auditSyslog is the name that stands for the system's log instead of a file.
const auditSyslog = "syslog"

// auditLine is one request that can change the cluster. It has no values, passwords or
// tokens.
type auditLine struct {
	Time      time.Time `json:"time"`
	OSUser    string    `json:"osUser,omitempty"`
	Host      string    `json:"host,omitempty"`
	PID       int       `json:"pid"`
	EtcdUser  string    `json:"etcdUser,omitempty"`
	Endpoints []string  `json:"endpoints"`
	Request   string    `json:"request"`
	// Targets are what was changed: keys and ranges as Go writes strings, ids, names.
	Targets  []string `json:"targets,omitempty"`
	More     int      `json:"moreTargets,omitempty"` // how many are not listed
	Outcome  string   `json:"outcome"`               // ok, or the class of the error; unknown-outcome: it may have happened
	Error    string   `json:"error,omitempty"`
	Revision int64    `json:"revision,omitempty"`
}

// auditTargets bounds the targets of one line: a transaction can have thousands.
const auditTargets = 20

// auditor writes one line for every request that can change the cluster. The place is
// opened anew for each line, so that a log that was rotated away is not written to, and
// before the request: what cannot be recorded is not sent.
type auditor struct {
	place     string
	line      auditLine
	openPlace func(string) (io.WriteCloser, error)
}

func newAuditor(s *config.Settings, endpoints []string, etcdUser string) *auditor {
	a := &auditor{place: s.Audit, line: auditLine{PID: os.Getpid(), EtcdUser: etcdUser, Endpoints: endpoints}, openPlace: openAudit}
	if u, err := user.Current(); err == nil {
		a.line.OSUser = u.Username
	}
	a.line.Host, _ = os.Hostname() // left out when the system does not know it
	return a
}

func openAudit(place string) (io.WriteCloser, error) {
	if place == auditSyslog {
		return openSyslog()
	}
	f, err := os.OpenFile(place, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	return f, nil
}

func (a *auditor) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if allowed(method, req) == nil {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	w, err := a.openPlace(a.place)
	if err != nil {
		return WithHint(err, "the request was not sent: with --audit what cannot be recorded is not done")
	}
	defer w.Close()
	err = invoke(ctx, method, req, reply, cc, opts...)
	return errors.Join(err, a.write(w, method, req, reply, err))
}

func (a *auditor) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if allowed(method, nil) == nil {
		return open(ctx, desc, cc, method, opts...)
	}
	w, err := a.openPlace(a.place)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	s, err := open(ctx, desc, cc, method, opts...)
	return s, errors.Join(err, a.write(w, method, nil, nil, err))
}

func (a *auditor) write(w io.Writer, method string, req, reply any, failed error) error {
	l := a.line
	l.Time = time.Now()
	l.Request = strings.TrimPrefix(path.Ext(path.Dir(method)), ".") + "/" + path.Base(method)
	l.Targets, l.More = targets(req)
	l.Outcome = "ok"
	if failed != nil {
		d := Describe(UnknownOutcome(failed, ""))
		l.Outcome, l.Error = d.Class, d.Error()
	} else if h, ok := reply.(interface{ GetHeader() *pb.ResponseHeader }); ok {
		l.Revision = h.GetHeader().GetRevision()
	}
	b, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if _, err := w.Write(append(b, '\n')); err != nil {
		return &Error{Code: IO, Err: fmt.Errorf("audit: %s has ended with %q, and its line could not be written: %w", l.Request, l.Outcome, err)}
	}
	return nil
}

// targets names what a request is about.
func targets(req any) (names []string, more int) {
	switch r := req.(type) {
	case *pb.TxnRequest:
		names = txnTargets(r)
	case *pb.CompactionRequest:
		names = []string{"revision " + strconv.FormatInt(r.GetRevision(), 10)}
	case *pb.LeaseGrantRequest:
		names = []string{fmt.Sprintf("ttl %ds", r.GetTTL())}
	case *pb.LeaseRevokeRequest:
		names = []string{"lease " + LeaseID(r.GetID())}
	case *pb.MemberAddRequest:
		names = r.GetPeerURLs()
	case *pb.MemberUpdateRequest:
		names = append([]string{fmt.Sprintf("member %x", r.GetID())}, r.GetPeerURLs()...)
	case *pb.MoveLeaderRequest:
		names = []string{fmt.Sprintf("member %x", r.GetTargetID())}
	case *pb.DowngradeRequest:
		names = []string{r.GetAction().String(), r.GetVersion()}
	case *pb.AlarmRequest:
		names = []string{r.GetAction().String(), r.GetAlarm().String()}
	case *pb.AuthRoleGrantPermissionRequest:
		names = []string{"role " + r.GetName(), r.GetPerm().GetPermType().String() + " " + span(r.GetPerm().GetKey(), r.GetPerm().GetRangeEnd())}
	case *pb.AuthRoleRevokePermissionRequest:
		names = []string{"role " + r.GetRole(), span(r.GetKey(), r.GetRangeEnd())}
	case interface {
		GetUser() string
		GetRole() string
	}:
		names = []string{"user " + r.GetUser(), "role " + r.GetRole()}
	case interface {
		GetName() string
		GetRole() string
	}:
		names = []string{"user " + r.GetName(), "role " + r.GetRole()}
	case interface{ GetName() string }: // users and roles; never the password
		names = []string{r.GetName()}
	case interface{ GetRole() string }:
		names = []string{"role " + r.GetRole()}
	case interface{ GetID() uint64 }:
		names = []string{fmt.Sprintf("member %x", r.GetID())}
	case interface {
		GetKey() []byte
		GetRangeEnd() []byte
	}:
		names = []string{span(r.GetKey(), r.GetRangeEnd())}
	case interface{ GetKey() []byte }:
		names = []string{span(r.GetKey(), nil)}
	}
	if len(names) > auditTargets {
		return names[:auditTargets], len(names) - auditTargets
	}
	return names, 0
}

func txnTargets(r *pb.TxnRequest) (names []string) {
	for _, branch := range []struct {
		name string
		ops  []*pb.RequestOp
	}{{"then ", r.GetSuccess()}, {"else ", r.GetFailure()}} {
		for _, op := range branch.ops {
			switch o := op.GetRequest().(type) {
			case *pb.RequestOp_RequestPut:
				names = append(names, branch.name+"put "+span(o.RequestPut.GetKey(), nil))
			case *pb.RequestOp_RequestDeleteRange:
				names = append(names, branch.name+"delete "+span(o.RequestDeleteRange.GetKey(), o.RequestDeleteRange.GetRangeEnd()))
			case *pb.RequestOp_RequestTxn:
				for _, n := range txnTargets(o.RequestTxn) {
					names = append(names, branch.name+n)
				}
			}
		}
	}
	return names
}

func span(key, end []byte) string {
	if len(end) == 0 {
		return strconv.Quote(string(key))
	}
	return fmt.Sprintf("[%q, %q)", key, end)
}
