package ovs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// timeout bounds each request to the database, and the wait for the switch.
const timeout = 10 * time.Second

// db is an open database.
type db struct {
	ctx    context.Context // of the operation that uses the database now
	client client.Client
	root   ovsdb.UUID // the only row of table Open_vSwitch
}

// open connects to a database. Without a socket the error is os.ErrNotExist: Open vSwitch is not installed, so it has
// none of our objects.
func (s *ovsSwitch) open(ctx context.Context, addr string) (*db, error) {
	if d := s.dbs[addr]; d != nil {
		d.ctx = ctx
		return d, nil
	}
	if err := reachable(ctx, addr); err != nil {
		return nil, err
	}
	d, err := connect(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("connect to Open vSwitch at %s: %w", withoutScheme(addr), because(ctx, err))
	}
	s.dbs[addr] = d
	return d, nil
}

// because returns why the context has ended, or the error if it has not.
func because(ctx context.Context, err error) error {
	if ended := context.Cause(ctx); ended != nil {
		return ended
	}
	return err
}

func withoutScheme(addr string) string { return strings.TrimPrefix(addr, "unix:") }

// reachable returns a short reason why the database does not answer.
func reachable(ctx context.Context, addr string) error {
	network, where, _ := strings.Cut(addr, ":")
	c, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, network, where)
	if err == nil {
		return c.Close()
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = errno
	}
	return fmt.Errorf(`Open vSwitch does not answer at %s: %w: start it (Debian: "systemctl start openvswitch-switch"), or set socket_file to its database's socket`,
		withoutScheme(addr), err)
}

func connect(ctx context.Context, addr string) (*db, error) {
	tables, err := model.NewClientDBModel("Open_vSwitch", nil)
	if err != nil {
		return nil, err
	}
	discard := logr.Discard()
	if network, path, _ := strings.Cut(addr, ":"); network == "unix" {
		addr = (&url.URL{Scheme: network, Path: path}).String()
	}
	c, err := client.NewOVSDBClient(tables, client.WithEndpoint(addr), client.WithLogger(&discard))
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := c.Connect(limited); err != nil {
		return nil, err
	}
	d := &db{ctx: ctx, client: c}
	rows, err := d.find("Open_vSwitch", nil, "_uuid")
	if err == nil && len(rows) == 0 {
		err = errors.New(`its database is empty: "ovs-vsctl init" prepares it`)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	d.root = rows[0].uuid()
	return d, nil
}

// do runs operations as one transaction.
func (d *db) do(ops ...ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	ctx, cancel := context.WithTimeout(d.ctx, timeout+time.Second)
	defer cancel()
	res, err := d.client.Transact(ctx, ops...)
	if err != nil {
		return nil, &unansweredError{because(d.ctx, err)}
	}
	if errs, err := ovsdb.CheckOperationResults(res, ops); err != nil {
		for _, e := range errs {
			return nil, fmt.Errorf("the Open vSwitch database rejects the change: %w", e)
		}
		return nil, fmt.Errorf("the Open vSwitch database rejects the change: %w", err)
	}
	return res, nil
}

// unansweredError is the error of a transaction that may have been applied.
type unansweredError struct{ error }

func (u *unansweredError) Error() string {
	return "query the Open vSwitch database: " + u.error.Error()
}
func (u *unansweredError) Unwrap() error { return u.error }

func unanswered(err error) bool {
	_, ok := errors.AsType[*unansweredError](err)
	return ok
}

// find selects columns of the rows that match a condition, or of all rows if it is nil.
func (d *db) find(table string, where *ovsdb.Condition, columns ...string) ([]row, error) {
	op := ovsdb.Operation{Op: ovsdb.OperationSelect, Table: table, Columns: columns}
	if where != nil {
		op.Where = []ovsdb.Condition{*where}
	}
	res, err := d.do(op)
	if err != nil {
		return nil, err
	}
	out := make([]row, len(res[0].Rows))
	for i, r := range res[0].Rows {
		out[i] = row(r)
	}
	return out, nil
}

// named returns the row with a name, or os.ErrNotExist.
func (d *db) named(table, name string, columns ...string) (row, error) {
	rows, err := d.find(table, is("name", name), columns...)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s %s of Open vSwitch: %w", strings.ToLower(table), name, os.ErrNotExist)
	}
	return rows[0], nil
}

// begin runs operations as one transaction that asks ovs-vswitchd to act on them. It returns the number for await.
func (d *db) begin(ops ...ovsdb.Operation) (number int, err error) {
	self := []ovsdb.Condition{*is("_uuid", d.root)}
	ops = append(ops,
		ovsdb.Operation{Op: ovsdb.OperationMutate, Table: "Open_vSwitch", Where: self,
			Mutations: []ovsdb.Mutation{{Column: "next_cfg", Mutator: ovsdb.MutateOperationAdd, Value: 1}}},
		ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Open_vSwitch", Where: self, Columns: []string{"next_cfg"}})
	res, err := d.do(ops...)
	if err != nil {
		return 0, err
	}
	last := res[len(ops)-1].Rows
	if len(last) == 0 {
		return 0, errors.New("the Open vSwitch database was emptied during the change")
	}
	number, _ = row(last[0]).number("next_cfg")
	return number, nil
}

// await waits until ovs-vswitchd has acted on all changes up to a number. It copies next_cfg to cur_cfg then.
func (d *db) await(number int) error {
	for deadline := time.Now().Add(timeout); ; {
		rows, err := d.find("Open_vSwitch", is("_uuid", d.root), "cur_cfg")
		if err != nil {
			return err
		}
		have := 0
		if len(rows) > 0 {
			have, _ = rows[0].number("cur_cfg")
		}
		if have >= number {
			return nil
		}
		left := int(time.Until(deadline).Milliseconds())
		if left <= 0 {
			return fmt.Errorf("ovs-vswitchd has not acted on a change within %v: is it running?", timeout)
		}
		if err := d.waitChange(have, left); err != nil {
			return err
		}
	}
}

// waitChange waits until cur_cfg differs from was, or until the time in milliseconds is over.
func (d *db) waitChange(was, left int) error {
	_, err := d.do(ovsdb.Operation{Op: ovsdb.OperationWait, Table: "Open_vSwitch", Where: []ovsdb.Condition{*is("_uuid", d.root)},
		Timeout: &left, Columns: []string{"cur_cfg"}, Until: "!=", Rows: []ovsdb.Row{{"cur_cfg": was}}})
	if _, timedOut := errors.AsType[*ovsdb.TimedOut](err); timedOut {
		return nil
	}
	return err
}

// settled returns why the switch could not set up an interface, or "" if the interface has a port number.
func (d *db) settled(name string) (problem string, err error) {
	i, err := d.named("Interface", name, "ofport", "error")
	if err != nil {
		return "", err
	}
	n, ok := i.number("ofport")
	switch msg := i.text("error"); {
	case msg != "":
		return msg, nil
	case !ok || n < 0:
		return "ovs-vswitchd could not set it up: see its log", nil
	}
	return "", nil
}

func (d *db) close() { d.client.Close() }
