package kv

import (
	"fmt"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
	"github.com/etcdctl-plus/etcdctl-plus/output"
)

// txnView is a transaction's answer in our own formats.
type txnView struct {
	Succeeded bool         `json:"succeeded"`
	Revision  int64        `json:"revision,omitempty"`
	Results   []resultView `json:"results"`
}

// resultView is the answer to one request.
type resultView struct {
	Put *putView `json:"put,omitempty"`
	Get *getView `json:"get,omitempty"`
	Del *delView `json:"del,omitempty"`
	Txn *txnView `json:"txn,omitempty"`
}

type getView struct {
	Count   int64        `json:"count"`
	More    bool         `json:"more,omitempty"`
	Records []recordView `json:"records"`
}

func newTxnView(r *pb.TxnResponse) *txnView {
	v := &txnView{Succeeded: r.GetSucceeded(), Revision: r.GetHeader().GetRevision(), Results: []resultView{}}
	for _, op := range r.GetResponses() {
		var one resultView
		switch a := op.GetResponse().(type) {
		case *pb.ResponseOp_ResponsePut:
			p := newPutView(a.ResponsePut)
			one.Put = &p
		case *pb.ResponseOp_ResponseDeleteRange:
			d := newDelView(a.ResponseDeleteRange)
			one.Del = &d
		case *pb.ResponseOp_ResponseRange:
			g := getView{Count: a.ResponseRange.GetCount(), More: a.ResponseRange.GetMore(), Records: []recordView{}}
			for _, kv := range a.ResponseRange.GetKvs() {
				g.Records = append(g.Records, newRecordView(reply.Record(kv), false))
			}
			one.Get = &g
		case *pb.ResponseOp_ResponseTxn:
			one.Txn = newTxnView(a.ResponseTxn)
		}
		v.Results = append(v.Results, one)
	}
	return v
}

// Table has a line for each request.
func (v *txnView) Table() output.Table {
	t := output.Table{Columns: []output.Column{{Name: "REQUEST", Keep: true}, {Name: "BRANCH", Keep: true}, {Name: "RESULT"}}}
	v.rows("", &t)
	if len(t.Rows) == 0 {
		t.Rows = [][]string{{"", v.branch(), "no requests"}}
	}
	return t
}

func (v *txnView) branch() string {
	if v.Succeeded {
		return "then"
	}
	return "else"
}

func (v *txnView) rows(prefix string, t *output.Table) {
	for i, r := range v.Results {
		name := prefix + strconv.Itoa(i+1)
		row := func(kind, result string) { t.Rows = append(t.Rows, []string{name + " " + kind, v.branch(), result}) }
		switch {
		case r.Put != nil:
			row("put", fmt.Sprintf("revision %d", v.Revision))
		case r.Del != nil:
			row("del", fmt.Sprintf("%d deleted", r.Del.Deleted))
		case r.Get != nil:
			row("get", fmt.Sprintf("%d found", r.Get.Count))
			for _, rec := range r.Get.Records {
				row("get", rec.Key+" = "+rec.cell())
			}
		case r.Txn != nil:
			row("txn", r.Txn.branch())
			r.Txn.rows(name+".", t)
		}
	}
}
