package kv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/commands/cli/reply"
)

type txnOptions struct {
	env         *cli.Env
	interactive bool
	file        string
	guard       writeGuard
}

// txn is a transaction as it was read.
type txn struct {
	cmps       []clientv3.Cmp
	then, orEl []clientv3.Op
}

func newTxnCmd(env *cli.Env) *cobra.Command {
	o := txnOptions{env: env}
	c := &cobra.Command{
		Use:   "txn [options]",
		Short: "Txn processes all the requests in one transaction",
		Long: `Reads a transaction from standard input and sends it as one: comparisons, an empty
line, requests for when all of them hold, an empty line, requests for when one does
not, an empty line.

  mod("key1") > "0"
  lease("key1") = "694d805f71bbcc08"

  put key1 "overwritten"
  get key1 --prefix

  put key1 "created"

Comparisons are of version, create, mod, value or lease, by = != < or >. Requests are
put, get and del with their flags. Words are split at spaces; double quotes take Go's
escapes (\n, \x00), single quotes nothing.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 0 {
				return cli.Usagef("txn command does not accept argument")
			}
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	f.BoolVarP(&o.interactive, "interactive", "i", false, "Input transaction in interactive mode")
	if !env.DropIn() {
		c.Long += `

With --file the transaction is YAML or JSON, with bytes exactly as they are:

  compare:
  - {key: app/leader, target: create, op: "=", value: 0}
  - {key: app/config, target: value, op: "!=", valueBase64: AAEC}
  - {prefix: app/jobs/, target: mod, op: "<", value: 1491}   # of every key there
  then:
  - put: {key: app/leader, value: "node-1", lease: 694d805f71bbcc08}
  - put: {key: app/blob, valueFile: blob.bin}
  - get: {prefix: app/jobs/, limit: 10, sortBy: mod, order: descend}
  - del: {key: app/old, rangeEnd: app/olf, prevKV: true}
  else:
  - txn:
      compare: [...]
      then: [...]

key, value and rangeEnd also come as keyBase64, valueBase64 and rangeEndBase64, value
as valueFile, beside the file. Text must be quoted where YAML would take it for a number
or a boolean. JSON documents one after another are transactions one after another; the
first that fails ends it.

A comparison that does not hold ends with exit code 4, when the requests for that case
were done (as etcdctl: 0).`
		c.Example = "  etcdctl-plus txn --file txn.yaml"
		f.StringVarP(&o.file, "file", "f", "", "read the transaction from a YAML or JSON file (- for standard input)")
		o.guard.define(f)
	}
	return c
}

func (o *txnOptions) run(ctx context.Context) error {
	if o.file != "" && o.interactive {
		return cli.Usagef("--file and --interactive exclude each other")
	}
	p, err := reply.New(o.env, reply.Fields|reply.Protobuf)
	if err != nil {
		return err
	}
	// etcdctl dials before it reads.
	client, err := o.env.Client(ctx)
	if err != nil {
		return err
	}
	all, err := o.read()
	if err != nil {
		return err
	}
	for i, t := range all {
		if err := o.send(ctx, p, client, t); err != nil {
			if len(all) > 1 {
				return fmt.Errorf("transaction %d of %d: %w", i+1, len(all), err)
			}
			return err
		}
	}
	return nil
}

func (o *txnOptions) send(ctx context.Context, p *reply.Printer, client *clientv3.Client, t *txn) error {
	r, err := o.guard.commit(ctx, o.env, client, t)
	if err != nil {
		return cli.UnknownOutcome(fmt.Errorf("transaction: %w", err), "look at the keys before you send it again")
	}
	if err := printTxn(p, (*pb.TxnResponse)(r)); err != nil {
		return err
	}
	if !r.Succeeded && !o.env.DropIn() {
		return cli.Failf(cli.Negative, "a comparison does not hold; the requests for that case were done")
	}
	return nil
}

// read returns one transaction or, of a file, several, which are sent one after another.
func (o *txnOptions) read() ([]*txn, error) {
	switch o.file {
	case "":
		t, err := o.readLines()
		return []*txn{t}, err
	case "-":
		b, err := o.env.ReadStdin("the transaction")
		if err != nil {
			return nil, err
		}
		return parseTxns(o.env, b, "standard input", ".")
	}
	return readTxnFile(o.env, o.file)
}

// readLines reads etcdctl's form.
func (o *txnOptions) readLines() (*txn, error) {
	in := &txnReader{o: o, r: bufio.NewReader(o.env.Stdin)}
	if !o.interactive && o.env.StdinTTY && !o.env.DropIn() {
		fmt.Fprintln(o.env.Stderr, "reading the transaction from the terminal: comparisons, an empty line, requests, an empty line, requests if not, an empty line")
	}
	t := &txn{}
	if err := in.block("compares:", func(line string) error {
		c, err := parseCompare(o.env, line)
		t.cmps = append(t.cmps, c)
		return err
	}); err != nil {
		return nil, err
	}
	for _, b := range []struct {
		prompt string
		ops    *[]clientv3.Op
	}{{"success requests (get, put, del):", &t.then}, {"failure requests (get, put, del):", &t.orEl}} {
		if err := in.block(b.prompt, func(line string) error {
			op, err := parseRequest(o.env, line)
			*b.ops = append(*b.ops, op)
			return err
		}); err != nil {
			return nil, err
		}
	}
	return t, nil
}

type txnReader struct {
	o    *txnOptions
	r    *bufio.Reader
	line int
	ends bool // input is over
}

// block reads lines up to an empty one. Under our own name the end of input will do.
func (in *txnReader) block(prompt string, add func(line string) error) error {
	if in.o.interactive {
		if _, err := fmt.Fprintln(in.o.env.Stdout, prompt); err != nil {
			return err
		}
		if err := in.o.env.Flush(); err != nil {
			return err
		}
	}
	for !in.ends {
		line, err := in.r.ReadString('\n')
		in.line++
		if err != nil {
			if !errors.Is(err, io.EOF) || in.o.env.DropIn() {
				return &cli.Error{Code: cli.Usage, Err: fmt.Errorf("read the transaction from standard input: %w", err), DropIn: 3}
			}
			in.ends = true
		}
		line = strings.TrimSpace(line)
		if line == "" {
			return nil
		}
		if err := add(line); err != nil {
			d := *cli.Describe(err)
			var known *cli.Error
			if !errors.As(err, &known) {
				d.DropIn = 3
			}
			d.Code, d.Err = cli.Usage, fmt.Errorf("line %d: %w", in.line, err)
			return &d
		}
	}
	return nil
}

// printTxn prints the answer of a transaction.
func printTxn(p *reply.Printer, r *pb.TxnResponse) error {
	return p.Print(reply.Answer{
		Header: r.GetHeader(), Message: r, JSON: newTxnJSON(r), View: newTxnView(r),
		Simple: func(b []byte) []byte { return appendTxn(b, r, p.Hex) },
		Fields: func(b []byte) []byte { return appendTxnFields(b, r, p.Hex) },
	})
}

func appendTxn(b []byte, r *pb.TxnResponse, hexed bool) []byte {
	if r.GetSucceeded() {
		b = append(b, "SUCCESS\n"...)
	} else {
		b = append(b, "FAILURE\n"...)
	}
	for _, op := range r.GetResponses() {
		b = append(b, '\n')
		switch v := op.GetResponse().(type) {
		case *pb.ResponseOp_ResponsePut:
			b = appendPut(b, v.ResponsePut, hexed)
		case *pb.ResponseOp_ResponseDeleteRange:
			b = appendDeleted(b, v.ResponseDeleteRange, hexed)
		case *pb.ResponseOp_ResponseRange:
			for _, kv := range v.ResponseRange.GetKvs() {
				b = reply.AppendRecord(b, kv.GetKey(), kv.GetValue(), hexed, false)
			}
		case *pb.ResponseOp_ResponseTxn:
			b = appendTxn(b, v.ResponseTxn, hexed)
		}
	}
	return b
}

func appendTxnFields(b []byte, r *pb.TxnResponse, hexed bool) []byte {
	b = fmt.Appendf(b, "\"Succeeded\" : %t\n", r.GetSucceeded())
	for _, op := range r.GetResponses() {
		switch v := op.GetResponse().(type) {
		case *pb.ResponseOp_ResponsePut:
			b = appendPutFields(reply.AppendHeader(b, v.ResponsePut.GetHeader(), hexed), v.ResponsePut, hexed)
		case *pb.ResponseOp_ResponseDeleteRange:
			b = appendDeletedFields(reply.AppendHeader(b, v.ResponseDeleteRange.GetHeader(), hexed), v.ResponseDeleteRange, hexed)
		case *pb.ResponseOp_ResponseRange:
			b = reply.AppendHeader(b, v.ResponseRange.GetHeader(), hexed)
			for _, kv := range v.ResponseRange.GetKvs() {
				b = reply.AppendFields(b, "", reply.Record(kv), hexed)
			}
			b = fmt.Appendf(b, "\"More\" : %t\n\"Count\" : %d\n", v.ResponseRange.GetMore(), v.ResponseRange.GetCount())
		case *pb.ResponseOp_ResponseTxn:
			b = appendTxnFields(reply.AppendHeader(b, v.ResponseTxn.GetHeader(), hexed), v.ResponseTxn, hexed)
		}
	}
	return b
}

// txnJSON is the document that etcdctl makes of a transaction's answer.
type txnJSON struct {
	Header    *pb.ResponseHeader `json:"header,omitempty"`
	Succeeded bool               `json:"succeeded,omitempty"`
	Responses []txnAnswerJSON    `json:"responses,omitempty"`
}

type txnAnswerJSON struct {
	Response struct {
		Range  *pb.RangeResponse       `json:"response_range,omitempty"`
		Put    *pb.PutResponse         `json:"response_put,omitempty"`
		Delete *pb.DeleteRangeResponse `json:"response_delete_range,omitempty"`
		Txn    *txnJSON                `json:"response_txn,omitempty"`
	}
}

func newTxnJSON(r *pb.TxnResponse) *txnJSON {
	j := &txnJSON{Header: r.GetHeader(), Succeeded: r.GetSucceeded()}
	for _, op := range r.GetResponses() {
		var a txnAnswerJSON
		a.Response.Range, a.Response.Put, a.Response.Delete = op.GetResponseRange(), op.GetResponsePut(), op.GetResponseDeleteRange()
		if t := op.GetResponseTxn(); t != nil {
			a.Response.Txn = newTxnJSON(t)
		}
		j.Responses = append(j.Responses, a)
	}
	return j
}
