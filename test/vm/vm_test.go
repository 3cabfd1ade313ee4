package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel/kerneltest"
)

func TestArchive(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	a := &archive{w: &b}
	a.dir("dev")
	a.file("init", []byte("hello"))
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	// The header has 110 bytes; the name and the data are each padded to a multiple of four.
	want := "070701" + "00000002" + "000081ed" + strings.Repeat("00000000", 2) + "00000001" + "00000000" + "00000005"
	file := text[strings.Index(text, want):]
	if file[110:115] != "init\x00" || file[116:124] != "hello\x00\x00\x00" || file[124:130] != "070701" {
		t.Errorf("a file of the archive is %q", file[:140])
	}
	if b.Len()%4 != 0 || !strings.Contains(text, "TRAILER!!!") {
		t.Errorf("%d bytes, ending %q", b.Len(), text[b.Len()-30:])
	}
}

func TestLoadOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("modules.dep", "kernel/fs/virtiofs.ko: kernel/fs/fuse.ko kernel/drivers/ring.ko kernel/drivers/virtio.ko\nkernel/fs/fuse.ko:\n"+
		"kernel/drivers/virtio_pci.ko: kernel/drivers/ring.ko kernel/drivers/virtio.ko\n")
	write("modules.builtin", "kernel/fs/overlay.ko\n")
	got, err := loadOrder(dir, []string{"virtio_pci", "virtiofs", "overlay"})
	want := []string{"kernel/drivers/virtio.ko", "kernel/drivers/ring.ko", "kernel/drivers/virtio_pci.ko", "kernel/fs/fuse.ko", "kernel/fs/virtiofs.ko"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("order %v (%v), want %v", got, err, want)
	}
	if _, err := loadOrder(dir, []string{"zfs"}); err == nil || !strings.Contains(err.Error(), "no module zfs") {
		t.Errorf("unknown module: %v", err)
	}
	write("modules.dep", "nonsense\n")
	if _, err := loadOrder(dir, []string{"overlay"}); err == nil || !strings.Contains(err.Error(), "no colon") {
		t.Errorf("invalid modules.dep: %v", err)
	}
}

func TestNewerVersion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"linux-image-6.1.0-56-cloud-amd64", "linux-image-6.1.0-9-cloud-amd64", true},
		{"linux-image-6.12.9+deb12-cloud-amd64", "linux-image-6.12.117+deb12-cloud-amd64", false},
		{"6.12", "6.1", true},
		{"6.1", "host", true},
	} {
		if got := newerVersion(tt.a, tt.b); got != tt.want {
			t.Errorf("%s is newer than %s: %v", tt.a, tt.b, got)
		}
	}
}

func TestChooseKernels(t *testing.T) {
	t.Parallel()
	if k, err := chooseKernels("6.12,6.1"); err != nil || len(k) != 2 || k[0].series != "6.12" {
		t.Errorf("%v, %v", k, err)
	}
	if _, err := chooseKernels("6.5"); err == nil || !strings.Contains(err.Error(), "want 6.1 or 6.12") {
		t.Errorf("an unknown kernel: %v", err)
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	record := func(feature, test, where string, ran bool) kerneltest.Record {
		return kerneltest.Record{Feature: feature, Package: "p", Test: test, Where: where, Ran: ran}
	}
	table, nowhere, notRun := summarize([]kerneltest.Record{
		record("FAIRLEAD_LONG", "TestLong", "host", false), record("FAIRLEAD_LONG", "TestLong", "6.12", false),
		record("FAIRLEAD_OTHER", "TestOther", "host", false), record("FAIRLEAD_OTHER", "TestOther", "6.1", true),
		record("vlan", "TestV", "host", false), record("vlan", "TestV", "6.12", true), record("vlan", "TestV", "6.1", true),
		record("vlan", "TestW", "6.12", true),
		record("tap", "TestT", "host", true),
		record("netkit", "TestN", "host", false), record("netkit", "TestN", "6.1", false),
	})
	const want = "tests that need  host                 6.1                  6.12\n" +
		"netkit           lacks it: 1 skipped  lacks it: 1 skipped  -\n" +
		"tap              1 ran                -                    -\n" +
		"vlan             lacks it: 1 skipped  1 ran                2 ran\n"
	if table != want {
		t.Errorf("printed\n%swant\n%s", table, want)
	}
	if !slices.Equal(nowhere, []string{"p TestN, which needs netkit"}) {
		t.Errorf("ran nowhere: %v", nowhere)
	}
	if !slices.Equal(notRun, []string{"p TestLong: set FAIRLEAD_LONG"}) {
		t.Errorf("not run: %v", notRun)
	}
}

// TestSkippedTestsRunInGuest checks that a guest runs exactly the tests that the host skipped.
func TestSkippedTestsRunInGuest(t *testing.T) {
	t.Parallel()
	r := func(pkg, test, where string, ran bool) kerneltest.Record {
		return kerneltest.Record{Feature: "f", Package: pkg, Test: test, Where: where, Ran: ran}
	}
	got := skippedOnly([]suite{
		{pkg: "engine/..."},
		{pkg: "scenario", run: "^(TestA|TestB)$"},
		{pkg: "scenario", run: "^TestFused$/^(x|y)$", on: "6.12"},
		{pkg: "idle", run: "^TestA$"},
	}, []kerneltest.Record{
		r("scenario", "TestA/x.y", "host", false), r("scenario", "TestA/z", "host", true), r("scenario", "TestA/w", "host", false), r("scenario", "TestA/w", "6.12", true),
		r("scenario", "TestB", "host", false), r("scenario", "TestFused/x", "host", false), r("scenario", "TestFused/q", "host", false), r("idle", "TestA", "host", true),
		r("engine", "TestA", "host", false), r("engine/nft", "TestB", "host", false), r("engine/nft", "TestC", "host", true), r("engines", "TestD", "host", false),
	})
	want := []suite{
		{pkg: "engine", run: "^TestA$"},
		{pkg: "engine/nft", run: "^TestB$"},
		{pkg: "scenario", run: `^TestA$/^x\.y$|^TestB$`},
		{pkg: "scenario", run: "^TestFused$/^x$", on: "6.12"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("suites:\n%+v\nwant\n%+v", got, want)
	}
}

// TestBootPanicIsRetried checks that a guest is booted again only if its kernel panicked before any program ran, or for the
// breakpoint of an emulated processor.
func TestBootPanicIsRetried(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		ctx   context.Context
		began bool
		err   error
		log   string
		again error
	}{
		{context.Background(), false, nil, "", errBootPanic},
		{context.Background(), true, nil, "", nil},
		{context.Background(), true, nil, "[  258.510000] int3: 0000 [#1] PREEMPT SMP NOPTI\n" + strings.Repeat("[  258.5] line\n", 60), errBreakpoint},
		{context.Background(), true, nil, "[  258.510000] Oops: int3: 0000 [#1] PREEMPT\n", errBreakpoint},
		{context.Background(), true, nil, "[  258.510000] BUG: kernel NULL pointer dereference\n[  258.6] Oops: 0000 [#1] SMP\n", nil},
		{context.Background(), false, errors.New("no such device"), "", nil},
		{over, false, nil, "", nil},
		{over, true, nil, "[  258.510000] int3: 0000 [#1] PREEMPT SMP NOPTI\n", nil},
	} {
		m := &machine{work: t.TempDir(), printed: c.began}
		if err := os.WriteFile(m.console(), []byte(c.log), 0o600); err != nil {
			t.Fatal(err)
		}
		err := m.noReportError(c.ctx, c.err)
		if again := errors.Is(err, errBootPanic) || errors.Is(err, errBreakpoint); again != (c.again != nil) || again && !errors.Is(err, c.again) {
			t.Errorf("began %v, err %v, %.30q: %v", c.began, c.err, c.log, err)
		}
		if first, _, _ := strings.Cut(c.log, "\n"); strings.Contains(first, "[#1]") && !strings.Contains(err.Error(), first) {
			t.Errorf("the message lacks %q", first)
		}
	}
}
