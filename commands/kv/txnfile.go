package kv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdctl-plus/etcdctl-plus/commands/cli"
	"github.com/etcdctl-plus/etcdctl-plus/registry/yaml"
)

// txnDoc is a transaction as a document.
type txnDoc struct {
	Compare []cmpDoc `json:"compare,omitempty"`
	Then    []opDoc  `json:"then,omitempty"`
	Else    []opDoc  `json:"else,omitempty"`
}

// keysDoc names one key, a prefix, a range [key, rangeEnd), or all keys from one on.
type keysDoc struct {
	Key            *string `json:"key,omitempty"`
	KeyBase64      []byte  `json:"keyBase64,omitempty"`
	Prefix         *string `json:"prefix,omitempty"`
	RangeEnd       *string `json:"rangeEnd,omitempty"`
	RangeEndBase64 []byte  `json:"rangeEndBase64,omitempty"`
	FromKey        bool    `json:"fromKey,omitempty"`
}

type cmpDoc struct {
	keysDoc
	Target      string          `json:"target"` // version, create, mod, value, lease
	Op          string          `json:"op"`     // = != < >
	Value       json.RawMessage `json:"value,omitempty"`
	ValueBase64 []byte          `json:"valueBase64,omitempty"`
}

// opDoc is one request; exactly one member is there.
type opDoc struct {
	Put *putDoc `json:"put,omitempty"`
	Get *getDoc `json:"get,omitempty"`
	Del *delDoc `json:"del,omitempty"`
	Txn *txnDoc `json:"txn,omitempty"`
}

type putDoc struct {
	Key         *string         `json:"key,omitempty"`
	KeyBase64   []byte          `json:"keyBase64,omitempty"`
	Value       *string         `json:"value,omitempty"`
	ValueBase64 *[]byte         `json:"valueBase64,omitempty"`
	ValueFile   string          `json:"valueFile,omitempty"` // beside the document
	Lease       json.RawMessage `json:"lease,omitempty"`
	IgnoreValue bool            `json:"ignoreValue,omitempty"`
	IgnoreLease bool            `json:"ignoreLease,omitempty"`
	PrevKV      bool            `json:"prevKV,omitempty"`
}

type getDoc struct {
	keysDoc
	Limit        int64  `json:"limit,omitempty"`
	Rev          int64  `json:"rev,omitempty"`
	SortBy       string `json:"sortBy,omitempty"`
	Order        string `json:"order,omitempty"`
	KeysOnly     bool   `json:"keysOnly,omitempty"`
	CountOnly    bool   `json:"countOnly,omitempty"`
	Serializable bool   `json:"serializable,omitempty"`
	MinCreateRev int64  `json:"minCreateRev,omitempty"`
	MaxCreateRev int64  `json:"maxCreateRev,omitempty"`
	MinModRev    int64  `json:"minModRev,omitempty"`
	MaxModRev    int64  `json:"maxModRev,omitempty"`
}

type delDoc struct {
	keysDoc
	PrevKV bool `json:"prevKV,omitempty"`
}

// readTxnFile reads a file of transactions.
func readTxnFile(env *cli.Env, path string) ([]*txn, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the transaction: %w", err)
	}
	return parseTxns(env, b, path, filepath.Dir(path))
}

// parseTxns reads one document of YAML, or of JSON one after another. Value files are
// looked for in dir.
func parseTxns(env *cli.Env, b []byte, name, dir string) ([]*txn, error) {
	bad := func(err error) error {
		return &cli.Error{Code: cli.Data, Err: fmt.Errorf("%s: %w", name, err), Hint: "`txn --help` shows the form"}
	}
	if trimmed := bytes.TrimLeft(b, " \t\r\n"); !bytes.HasPrefix(trimmed, []byte("{")) {
		j, err := yaml.ToJSON(b)
		if err != nil {
			return nil, bad(err)
		}
		b = j
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	p := &txnParser{env: env, dir: dir}
	var all []*txn
	for {
		var doc *txnDoc
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) && len(all) > 0 {
			return all, nil
		}
		if err != nil {
			return nil, bad(jsonError(err))
		}
		if doc == nil {
			return nil, bad(errors.New("there is no transaction"))
		}
		t, err := p.txn(doc)
		if err != nil {
			return nil, bad(err)
		}
		all = append(all, t)
	}
}

// jsonError says what to do about a scalar that YAML took for something else.
func jsonError(err error) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fmt.Errorf("%s is a %s where %s belongs; text that looks like a number or a boolean needs quotes", kind.Field, kind.Value, kind.Type)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it is empty or cut off")
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

type txnParser struct {
	env   *cli.Env
	dir   string
	depth int
}

// maxTxnDepth is far above what a server takes.
const maxTxnDepth = 32

func (p *txnParser) txn(doc *txnDoc) (*txn, error) {
	if p.depth++; p.depth > maxTxnDepth {
		return nil, errors.New("transactions are nested too deep")
	}
	defer func() { p.depth-- }()
	t := &txn{}
	for i := range doc.Compare {
		c, err := p.compare(&doc.Compare[i])
		if err != nil {
			return nil, fmt.Errorf("compare[%d]: %w", i, err)
		}
		t.cmps = append(t.cmps, c)
	}
	var err error
	if t.then, err = p.ops("then", doc.Then); err != nil {
		return nil, err
	}
	t.orEl, err = p.ops("else", doc.Else)
	return t, err
}

func (p *txnParser) ops(branch string, docs []opDoc) ([]clientv3.Op, error) {
	var ops []clientv3.Op
	for i, d := range docs {
		op, err := p.op(d)
		if err != nil {
			return nil, fmt.Errorf("%s[%d]: %w", branch, i, err)
		}
		ops = append(ops, op)
	}
	return ops, nil
}

func (p *txnParser) op(d opDoc) (clientv3.Op, error) {
	n := 0
	for _, there := range []bool{d.Put != nil, d.Get != nil, d.Del != nil, d.Txn != nil} {
		if there {
			n++
		}
	}
	if n != 1 {
		return clientv3.Op{}, errors.New("expected one of put, get, del and txn")
	}
	switch {
	case d.Put != nil:
		return p.put(d.Put)
	case d.Get != nil:
		return d.Get.op(p.env)
	case d.Del != nil:
		key, end, err := d.Del.keys()
		if err != nil {
			return clientv3.Op{}, fmt.Errorf("del: %w", err)
		}
		o := delOptions{prevKV: d.Del.PrevKV}
		o.keys.rng.End = end
		return clientv3.OpDelete(string(key), o.ops()...), nil
	}
	t, err := p.txn(d.Txn)
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("txn: %w", err)
	}
	return clientv3.OpTxn(t.cmps, t.then, t.orEl), nil
}

// text is a string or base64, whichever is there.
func text(name string, s *string, b []byte) ([]byte, error) {
	switch {
	case s != nil && b != nil:
		return nil, fmt.Errorf("%s and %sBase64 are both there", name, name)
	case s != nil:
		return []byte(*s), nil
	}
	return b, nil
}

// keys returns key and end of range; nil for one key.
func (k *keysDoc) keys() (key, end []byte, err error) {
	if key, err = text("key", k.Key, k.KeyBase64); err != nil {
		return nil, nil, err
	}
	if end, err = text("rangeEnd", k.RangeEnd, k.RangeEndBase64); err != nil {
		return nil, nil, err
	}
	var args keyArgs
	switch {
	case k.Prefix != nil && (key != nil || end != nil || k.FromKey):
		return nil, nil, errors.New("prefix stands alone, without key, rangeEnd and fromKey")
	case end != nil && k.FromKey:
		return nil, nil, errors.New("rangeEnd and fromKey exclude each other")
	case k.Prefix != nil:
		args.prefix, key = true, []byte(*k.Prefix)
	case key == nil:
		return nil, nil, errors.New("key is missing")
	}
	words := []string{string(key)}
	if args.fromKey = k.FromKey; end != nil {
		words = append(words, string(end))
	}
	if err := args.complete("", words); err != nil {
		return nil, nil, err
	}
	return args.rng.Key, args.rng.End, nil
}

func (p *txnParser) compare(d *cmpDoc) (clientv3.Cmp, error) {
	key, end, err := d.keys()
	if err != nil {
		return clientv3.Cmp{}, err
	}
	val := strings.TrimSpace(string(d.Value))
	switch {
	case d.ValueBase64 != nil && d.Value != nil:
		return clientv3.Cmp{}, errors.New("value and valueBase64 are both there")
	case d.ValueBase64 != nil && d.Target != "value":
		return clientv3.Cmp{}, errors.New("valueBase64 is for the target value")
	case d.ValueBase64 != nil:
		val = string(d.ValueBase64)
	case d.Value == nil:
		return clientv3.Cmp{}, errors.New("value is missing")
	case strings.HasPrefix(val, `"`):
		if err := json.Unmarshal(d.Value, &val); err != nil {
			return clientv3.Cmp{}, err
		}
	case d.Target == "value":
		return clientv3.Cmp{}, fmt.Errorf("value %s is no text; put it in quotes", val)
	case d.Target == "lease": // a number is decimal, text is as ids are written
		n, err := strconv.ParseInt(val, 10, 64)
		if err != nil {
			return clientv3.Cmp{}, fmt.Errorf("lease %s is no id", val)
		}
		val = fmt.Sprintf("%x", uint64(n))
	}
	c, err := newCompare(p.env, d.Target, string(key), d.Op, val)
	if err == nil && end != nil {
		c = c.WithRange(string(end))
	}
	return c, err
}

func (p *txnParser) put(d *putDoc) (clientv3.Op, error) {
	key, err := text("key", d.Key, d.KeyBase64)
	if err != nil {
		return clientv3.Op{}, err
	}
	if len(key) == 0 {
		return clientv3.Op{}, errors.New("put: key is missing; etcd has no empty key")
	}
	o := putOptions{env: p.env, prevKV: d.PrevKV, ignoreValue: d.IgnoreValue, ignoreLease: d.IgnoreLease}
	var value []byte
	given := 0
	if d.Value != nil {
		value, given = []byte(*d.Value), given+1
	}
	if d.ValueBase64 != nil {
		value, given = *d.ValueBase64, given+1
	}
	if d.ValueFile != "" {
		path := d.ValueFile
		if !filepath.IsAbs(path) {
			path = filepath.Join(p.dir, path)
		}
		if value, err = os.ReadFile(path); err != nil {
			return clientv3.Op{}, fmt.Errorf("put %q: %w", key, err)
		}
		given++
	}
	switch {
	case d.IgnoreValue && given > 0:
		return clientv3.Op{}, fmt.Errorf("put %q: ignoreValue and a value exclude each other", key)
	case !d.IgnoreValue && given != 1:
		return clientv3.Op{}, fmt.Errorf("put %q: expected one of value, valueBase64 and valueFile", key)
	}
	if d.Lease != nil {
		if o.lease, err = leaseOf(p.env, d.Lease); err != nil {
			return clientv3.Op{}, fmt.Errorf("put %q: %w", key, err)
		}
	}
	return clientv3.OpPut(string(key), string(value), o.ops()...), nil
}

// leaseOf reads a lease: text as ids are written, a number is decimal.
func leaseOf(env *cli.Env, raw json.RawMessage) (int64, error) {
	var s string
	if err := json.Unmarshal(raw, &s); err == nil {
		return parseLease(env, s)
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("lease %s is no id", raw)
	}
	return n, nil
}

func (d *getDoc) op(env *cli.Env) (clientv3.Op, error) {
	key, end, err := d.keys()
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("get: %w", err)
	}
	sortBy := strings.ToUpper(d.SortBy)
	if sortBy == "MOD" {
		sortBy = "MODIFY"
	}
	o := getOptions{env: env, consistency: "l", order: d.Order, sortBy: sortBy, limit: d.Limit, rev: d.Rev, keysOnly: d.KeysOnly, countOnly: d.CountOnly,
		minCreate: d.MinCreateRev, maxCreate: d.MaxCreateRev, minMod: d.MinModRev, maxMod: d.MaxModRev}
	if d.Serializable {
		o.consistency = "s"
	}
	if err := o.check(); err != nil {
		return clientv3.Op{}, fmt.Errorf("get: %w", err)
	}
	o.keys.rng.Key, o.keys.rng.End = key, end
	return clientv3.OpGet(string(key), o.ops()...), nil
}
