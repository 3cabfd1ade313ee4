package plugin_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/attach"
	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/plugin"
	"github.com/fairlead/fairlead/plugins"
	"github.com/fairlead/fairlead/skel"
)

// bridged is a host with one container on a bridge, and a GC whose list of valid attachments is empty.
type bridged struct {
	t     *testing.T
	p     plugin.Plugin
	env   plugin.Env
	args  skel.CmdArgs
	owner kernel.Owner
	dir   string
}

func newBridged(t *testing.T) *bridged {
	t.Helper()
	kerneltest.Host(t)
	dir := t.TempDir()
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, filepath.Join(dir, "host-local")) // so that IPAM runs in this process
	}
	if err != nil {
		t.Fatal(err)
	}
	conf := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "n", "type": "bridge", "isGateway": true, "ipMasq": true, "cni.dev/valid-attachments": [],
		"ipam": {"type": "host-local", "dataDir": %q, "subnet": "10.1.0.0/24"}}`, dir)
	return &bridged{
		t: t, p: declared(t, "bridge"), env: plugin.Env{IPAM: plugins.IPAM(), Root: filepath.Join(dir, "run")}, dir: dir,
		args:  skel.CmdArgs{ContainerID: "c", IfName: "eth0", Netns: kerneltest.Netns(t), Path: dir, StdinData: []byte(conf)},
		owner: kernel.Owner{Network: "n", ContainerID: "c", IfName: "eth0"},
	}
}

func (b *bridged) add() *cni.Result {
	b.t.Helper()
	res, err := b.p.Skel(b.env).Funcs.Add(b.t.Context(), &b.args)
	if err != nil {
		b.t.Fatal(err)
	}
	return res
}

// gc runs a GC that starts now.
func (b *bridged) gc() {
	b.t.Helper()
	if err := b.p.Skel(b.env).Funcs.GC(plugin.GCStartingNow(b.t.Context()), &b.args); err != nil {
		b.t.Fatal(err)
	}
}

// has reports which parts of the attachment exist, such as "link address element".
func (b *bridged) has() string {
	b.t.Helper()
	var out []string
	if strings.Contains(kerneltest.In(b.t, b.args.Netns, "ip", "link"), "eth0") {
		out = append(out, "link")
	}
	if _, err := os.Stat(filepath.Join(b.dir, "n", "10.1.0.2")); err == nil {
		out = append(out, "address")
	}
	if strings.Contains(kerneltest.Run(b.t, "nft", "list", "ruleset"), `"`+b.owner.Tag()+`"`) {
		out = append(out, "element")
	}
	return strings.Join(out, " ")
}

const everything = "link address element"

func (b *bridged) want(want, when string) {
	b.t.Helper()
	if have := b.has(); have != want {
		b.t.Errorf("%s: the attachment has %q, want %q", when, have, want)
	}
}

// wantCollected checks that a GC keeps the attachment until the process of its ADD ends, which kill stands for.
func (b *bridged) wantCollected(kill func()) {
	b.t.Helper()
	b.gc()
	b.want(everything, "during the ADD")
	kill()
	b.gc()
	b.want("", "after the ADD was killed")
}

// TestGCKeepsYounger runs an ADD after a GC started. The GC's list of valid attachments does not have it.
func TestGCKeepsYounger(t *testing.T) {
	t.Parallel()
	b := newBridged(t)
	ctx := plugin.GCStartingNow(t.Context())
	b.add()
	if err := b.p.Skel(b.env).Funcs.GC(ctx, &b.args); err != nil {
		t.Fatal(err)
	}
	b.want(everything, "after the GC that was older")
	b.gc()
	b.want("", "after the next GC")
}

// TestGCKeepsRunningAdd runs a GC during an ADD that has written its record. The ADD began before the GC.
func TestGCKeepsRunningAdd(t *testing.T) {
	t.Parallel()
	b := newBridged(t)
	b.add()
	d := attach.Open(b.env.Root)
	rec, err := d.Read(b.owner)
	if err != nil {
		t.Fatal(err)
	}
	rec.Parts[0].Done = false
	if err := d.Write(rec); err != nil { // and holds its lock, as an ADD does
		t.Fatal(err)
	}
	b.wantCollected(rec.Unlock)
}

// TestGCKeepsReservedAdd runs a GC during an ADD that holds its reservation and has no record yet. Only owner tags and
// the address file tell of it.
func TestGCKeepsReservedAdd(t *testing.T) {
	t.Parallel()
	b := newBridged(t)
	b.add()
	d := attach.Open(b.env.Root)
	if err := d.Remove(b.owner); err != nil {
		t.Fatal(err)
	}
	reservation, err := d.Reserve(b.owner)
	if err != nil {
		t.Fatal(err)
	}
	b.wantCollected(reservation.Free)
}

// TestGCKeepsAddBetweenSteps runs a whole ADD after a GC has listed the attachments. No list of the GC has it.
func TestGCKeepsAddBetweenSteps(t *testing.T) {
	t.Parallel()
	b := newBridged(t)
	steps, end, err := b.p.GCInSteps(plugin.GCStartingNow(t.Context()), &b.args, b.env)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if err := steps.Keep(); err != nil {
		t.Fatal(err)
	}
	b.add()
	if err := errors.Join(steps.Records(), steps.Tagged()); err != nil {
		t.Fatal(err)
	}
	b.want(everything, "after the GC")
	if err := attach.Open(b.env.Root).Remove(b.owner); err != nil {
		t.Fatal(err)
	}
	if err := steps.Tagged(); err != nil {
		t.Fatal(err)
	}
	b.want("address", "after its record was removed") // IPAM's own GC releases the address
}

// TestGCTimeOfManyAttachments checks that the time of a GC does not grow with the square of the number of attachments: to
// compare each of 5,000 owner tags with each of 10,000 valid attachments takes seconds.
func TestGCTimeOfManyAttachments(t *testing.T) {
	kerneltest.Host(t)
	root := t.TempDir()
	var valid []cni.Attachment
	var claims strings.Builder
	for i := range 10_000 {
		a := cni.Attachment{ContainerID: fmt.Sprintf("%064x", i), IfName: "eth0"}
		valid = append(valid, a)
		if i >= 5_000 {
			tag := kernel.Owner{Network: "n", ContainerID: a.ContainerID, IfName: a.IfName}.Tag()
			fmt.Fprintf(&claims, "0.0.0.0 %s\n", tag)
		}
	}
	file := filepath.Join(root, "hostports", "tcp-80")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(claims.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(valid)
	if err != nil {
		t.Fatal(err)
	}
	args := skel.CmdArgs{StdinData: fmt.Appendf(nil, `{"cniVersion": "1.1.0", "name": "n", "type": "portmap", "cni.dev/valid-attachments": %s}`, list)}
	began := time.Now()
	if err := declared(t, "portmap").Skel(plugin.Env{Root: root}).Funcs.GC(plugin.GCStartingNow(t.Context()), &args); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > kerneltest.Slow(time.Second) {
		t.Errorf("the GC took %v", took)
	}
	if left, err := os.ReadFile(file); err != nil || string(left) != claims.String() {
		t.Errorf("host ports of valid attachments were released: %v", err)
	}
}
