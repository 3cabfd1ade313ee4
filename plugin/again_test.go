package plugin_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/wire"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/skel"
)

// withPrev returns the configuration with the result of an ADD, for another plugin type if typ is not empty.
func (b *bridged) withPrev(prev *cni.Result, typ string, more map[string]any) []byte {
	b.t.Helper()
	conf := map[string]any{}
	if err := json.Unmarshal(b.args.StdinData, &conf); err != nil {
		b.t.Fatal(err)
	}
	if typ != "" {
		conf = map[string]any{"cniVersion": conf["cniVersion"], "name": conf["name"], "type": typ}
	}
	text, err := wire.EncodeValue(prev, "1.1.0")
	if err != nil {
		b.t.Fatal(err)
	}
	conf["prevResult"] = json.RawMessage(text)
	for key, value := range more {
		conf[key] = value
	}
	out, err := json.Marshal(conf)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// TestAddAfterInterruptedList repeats the ADD of a list whose two plugins were both killed before they were done. The
// first plugin removes what both created and frees the host port, also when a collector has just written the record and
// still locks it.
func TestAddAfterInterruptedList(t *testing.T) {
	t.Parallel()
	b := newBridged(t)
	res := b.add()
	ports := b.args
	ports.StdinData = b.withPrev(res, "portmap", map[string]any{
		"runtimeConfig": map[string]any{"portMappings": []any{map[string]any{"hostPort": 8080, "containerPort": 80}}},
	})
	if _, err := declared(t, "portmap").Skel(b.env).Funcs.Add(t.Context(), &ports); err != nil {
		t.Fatal(err)
	}
	d := attach.Open(b.env.Root)
	rec, err := d.Read(b.owner)
	if err != nil || len(rec.Parts) != 2 {
		t.Fatalf("the record of two plugins: %+v, %v", rec, err)
	}
	for i := range rec.Parts {
		rec.Parts[i].Done = false
	}
	if err := d.Write(rec); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, rec.Unlock)

	b.add()
	b.want("link element", "after the second ADD, which has the next address")
	if rules := kerneltest.Run(t, "nft", "list", "ruleset"); strings.Contains(rules, "8080") {
		t.Errorf("the port of the interrupted ADD is left:\n%s", rules)
	}
	other := b.owner
	other.ContainerID = "another"
	unlock, err := d.Claim(t.Context(), other, []attach.Port{{Protocol: "tcp", HostPort: 8080, ContainerPort: 80}})
	if err != nil {
		t.Fatalf("another container takes the port of the interrupted ADD: %v", err)
	}
	unlock()
	if rec, err := d.Read(b.owner); err != nil || len(rec.Parts) != 1 || !rec.Parts[0].Done {
		t.Errorf("the record after the second ADD: %+v, %v", rec, err)
	}
}

// TestAddDuringDel adds a container with a new namespace while a collector has the record of the old one. The ADD waits.
func TestAddDuringDel(t *testing.T) {
	t.Parallel()
	b := newBridged(t)
	b.add()
	d := attach.Open(b.env.Root)
	rec, err := d.Read(b.owner)
	if err != nil {
		t.Fatal(err)
	}
	rec.NetnsID += "0" // as if the namespace was gone
	if err := d.Write(rec); err != nil {
		t.Fatal(err)
	}
	rec.Unlock()
	taken, err := d.Take(t.Context(), b.owner)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, taken.Unlock)
	b.args.Netns = kerneltest.Netns(t)
	b.add()
}

// TestCheckInOtherNamespace runs CHECK with a CNI_NETNS that is not the one in the result.
func TestCheckInOtherNamespace(t *testing.T) {
	t.Parallel()
	b := newBridged(t)
	res := b.add()
	args := b.args
	args.StdinData = b.withPrev(res, "", nil)
	check := func(args skel.CmdArgs) error { return b.p.Skel(b.env).Funcs.Check(t.Context(), &args) }
	if err := check(args); err != nil {
		t.Fatalf("CHECK in the attachment's namespace: %v", err)
	}
	args.Netns = kerneltest.Netns(t)
	want := fmt.Sprintf("prevResult has interface eth0 in sandbox %s, CNI_NETNS is %s", b.args.Netns, args.Netns)
	if err := check(args); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("CHECK in another namespace: %v, want %q", err, want)
	}
}

// TestNullPrevResult checks that "prevResult": null means that there is no prevResult. Some runtimes write it.
func TestNullPrevResult(t *testing.T) {
	t.Parallel()
	b := newBridged(t)
	conf := strings.TrimSuffix(string(b.args.StdinData), "}") + `, "prevResult": null}`
	b.args.StdinData = []byte(conf)
	b.add()
	if err := b.p.Skel(b.env).Funcs.Check(t.Context(), &b.args); err == nil || !strings.Contains(err.Error(), "CHECK needs a prevResult") {
		t.Errorf("CHECK: %v", err)
	}
	ports := b.args
	ports.StdinData = []byte(strings.Replace(conf, `"bridge"`, `"portmap"`, 1))
	if _, err := declared(t, "portmap").Skel(b.env).Funcs.Add(t.Context(), &ports); err == nil || !strings.Contains(err.Error(), "must be called as chained plugin") {
		t.Errorf("ADD of portmap: %v", err)
	}
	if err := b.p.Skel(b.env).Funcs.Del(t.Context(), &b.args); err != nil {
		t.Errorf("DEL: %v", err)
	}
}
