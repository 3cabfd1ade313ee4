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

// patience bounds each question to the database, and the wait for the switch.
const patience = 10 * time.Second

// db is an open database.
type db struct {
	client client.Client
	root   ovsdb.UUID // of the one row of Open_vSwitch
}

// open connects to a database. Where there is no socket the error is
// os.ErrNotExist: Open vSwitch is not there, nor anything of ours in it.
func (s *ovsSwitch) open(addr string) (*db, error) {
	if d := s.dbs[addr]; d != nil {
		return d, nil
	}
	if err := reachable(addr); err != nil {
		return nil, err
	}
	d, err := connect(addr)
	if err != nil {
		return nil, fmt.Errorf("speak with Open vSwitch at %s: %w", shown(addr), err)
	}
	s.dbs[addr] = d
	return d, nil
}

func shown(addr string) string { return strings.TrimPrefix(addr, "unix:") }

// reachable tells in few words why nobody answers.
func reachable(addr string) error {
	network, where, _ := strings.Cut(addr, ":")
	c, err := net.DialTimeout(network, where, patience)
	if err == nil {
		return c.Close()
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = errno
	}
	return fmt.Errorf(`Open vSwitch does not answer at %s: %w: start it (Debian: "systemctl start openvswitch-switch"), or name its database's socket by socket_file`,
		shown(addr), err)
}

func connect(addr string) (*db, error) {
	tables, err := model.NewClientDBModel("Open_vSwitch", nil)
	if err != nil {
		return nil, err
	}
	quiet := logr.Discard()
	if network, path, _ := strings.Cut(addr, ":"); network == "unix" {
		addr = (&url.URL{Scheme: network, Path: path}).String()
	}
	c, err := client.NewOVSDBClient(tables, client.WithEndpoint(addr), client.WithLogger(&quiet))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.Connect(ctx); err != nil {
		return nil, err
	}
	d := &db{client: c}
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

// do does operations as one transaction.
func (d *db) do(ops ...ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience+time.Second)
	defer cancel()
	res, err := d.client.Transact(ctx, ops...)
	if err != nil {
		return nil, &unansweredError{err}
	}
	if errs, err := ovsdb.CheckOperationResults(res, ops); err != nil {
		for _, e := range errs {
			return nil, fmt.Errorf("the database of Open vSwitch refuses: %w", e)
		}
		return nil, fmt.Errorf("the database of Open vSwitch refuses: %w", err)
	}
	return res, nil
}

// unansweredError is of a transaction that may have been made.
type unansweredError struct{ error }

func (u *unansweredError) Error() string {
	return "ask the database of Open vSwitch: " + u.error.Error()
}
func (u *unansweredError) Unwrap() error { return u.error }

func unanswered(err error) bool {
	_, ok := errors.AsType[*unansweredError](err)
	return ok
}

// find selects columns of the rows that meet a condition; nil: of all.
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

// named is the row of a name; none is os.ErrNotExist.
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

// begin does operations as one transaction that asks ovs-vswitchd to act on them,
// and returns the number to await.
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
		return 0, errors.New("the database of Open vSwitch was emptied meanwhile")
	}
	number, _ = row(last[0]).number("next_cfg")
	return number, nil
}

// await returns when ovs-vswitchd has acted on all up to a number: it copies
// next_cfg to cur_cfg then.
func (d *db) await(number int) error {
	for deadline := time.Now().Add(patience); ; {
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
			return fmt.Errorf("ovs-vswitchd has not acted on a change within %v: is it running?", patience)
		}
		if err := d.waitChange(have, left); err != nil {
			return err
		}
	}
}

// waitChange has the server answer when cur_cfg is not what it was, or when the
// time, in milliseconds, is over.
func (d *db) waitChange(was, left int) error {
	_, err := d.do(ovsdb.Operation{Op: ovsdb.OperationWait, Table: "Open_vSwitch", Where: []ovsdb.Condition{*is("_uuid", d.root)},
		Timeout: &left, Columns: []string{"cur_cfg"}, Until: "!=", Rows: []ovsdb.Row{{"cur_cfg": was}}})
	if _, timedOut := errors.AsType[*ovsdb.TimedOut](err); timedOut {
		return nil
	}
	return err
}

// settled tells whether an interface is in use: the switch gives it a number, or
// says what went wrong.
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
		return "ovs-vswitchd could not set it up: its log says why", nil
	}
	return "", nil
}

func (d *db) close() { d.client.Close() }
