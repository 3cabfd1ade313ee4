package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/bench/figures"
)

func TestConfidence(t *testing.T) {
	t.Parallel()
	same := []float64{1, 1, 1, 1}
	if low, high := confidence(same); low != 1 || high != 1 || figures.Median(same) != 1 {
		t.Errorf("of equal values: %v to %v, median %v", low, high, figures.Median(same))
	}
	spread := []float64{0.5, 0.8, 1, 1.2, 2, 1.1, 0.9}
	low, high := confidence(spread)
	if m := figures.Median(spread); m != 1 || low >= m || high <= m || low < 0.5 || high > 2 {
		t.Errorf("median %v, interval %v to %v", m, low, high)
	}
	if low, high := confidence(nil); low != 0 || high != 0 || figures.Median(nil) != 0 {
		t.Error("nothing has a median")
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	r := row{Who: "Fairlead", Values: []float64{2, 4, 9}}
	r.compare([]float64{1, 4, 3})
	if r.Median != 4 || r.Ratio != 2 || r.Low < 1 || r.High > 3 {
		t.Errorf("%+v", r)
	}
	text := table([]row{{Who: "manual", Way: "w", Unit: "u", Median: 1}, r})
	if !strings.Contains(text, "| manual | 1 | 1 |") || !strings.Contains(text, "| Fairlead | 4 | 2.000 (") {
		t.Error(text)
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{4: "4", 9.4521: "9.452", 16.746: "16.75", 999.96: "1000", 4510.4: "4510", 31813: "31810", 1234567: "1235000"} {
		if have := number(v); have != want {
			t.Errorf("%v: %s, want %s", v, have, want)
		}
	}
}

func TestOtherContainersAreCopies(t *testing.T) {
	t.Parallel()
	var rule any
	const text = `{"expr": [{"match": {"right": 8081}}, {"dnat": {"addr": "10.9.0.3", "port": 80}}], "comment": "for 10.9.0.3 at 5202"}`
	if err := json.Unmarshal([]byte(text), &rule); err != nil {
		t.Fatal(err)
	}
	if !isOfB(rule) || isOfB("10.9.0.30") || isOfB(80.0) {
		t.Error("b's parts are not recognized")
	}
	have, _ := json.Marshal(asOther(rule, 251))
	const want = `{"comment":"for 10.9.2.2 at 5202","expr":[{"match":{"right":20502}},{"dnat":{"addr":"10.9.2.2","port":80}}]}`
	if string(have) != want {
		t.Errorf("have %s", have)
	}
	set := map[string]any{"family": "inet", "table": "t", "name": "s", "elem": []any{"10.9.0.2", podB}}
	if add := elements(set, 2500); len(add) != 3 {
		t.Errorf("%d commands for 2,500 elements", len(add))
	}
}

func TestOwnChains(t *testing.T) {
	t.Parallel()
	const text = `-A PREROUTING -j CNI-HOSTPORT-DNAT
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "10.9.0.3" -j CNI-DN-2
-A CNI-DN-1 -p tcp --dport 8080 -j DNAT --to-destination 10.9.0.2:80
-A CNI-DN-2 -s 10.9.0.3/32 -p tcp --dport 8081 -j CNI-HOSTPORT-SETMARK
-A CNI-DN-2 -p tcp --dport 8081 -j DNAT --to-destination 10.9.0.3:80
`
	if have := ownChains(text); !reflect.DeepEqual(have, []string{"CNI-DN-2"}) {
		t.Errorf("%v", have)
	}
}

// TestPath runs all measurements briefly: every contender and path, with and without copies, and between hosts with
// each backend that the kernel has.
func TestPath(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root to create network namespaces")
	}
	program := filepath.Join(t.TempDir(), "path")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for least, args := range map[int][]string{5 * (3 + 2): {"-others", "20"}, 4: {"-hosts"}} { // host-gw and vxlan, two contenders each
		file := filepath.Join(t.TempDir(), "figures.json")
		cmd := exec.Command(program, append(args, "-n", "1", "-for", "50ms", "-what", "connect", "-json", file)...)
		cmd.Dir = "../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var rows []row
		if err := json.Unmarshal(raw, &rows); err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if r.Median <= 0 || r.Ratio <= 0 {
				t.Errorf("%+v", r)
			}
		}
		if len(rows) < least {
			t.Errorf("%v: %d rows", args, len(rows))
		}
	}
}
