package figures

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	var samples []Sample
	for i := range 101 {
		samples = append(samples, Sample{Time: float64((i * 37) % 101), CPU: 2 * float64(i), Silent: i%50 == 0})
	}
	want := Stat{Min: 0, MinCPU: 0, Median: 50, P10: 10, P90: 90, P99: 99, CPU: 100, Rounds: 101, Silent: 3}
	if have := Summary(samples); have != want {
		t.Errorf("%+v, want %+v", have, want)
	}
	if have := Summary(nil); have != (Stat{}) {
		t.Errorf("of nothing: %+v", have)
	}
	one := Summary([]Sample{{Time: 7, CPU: 1}})
	if one.Median != 7 || one.P10 != 7 || one.P99 != 7 || one.CPU != 1 {
		t.Errorf("of one: %+v", one)
	}
}

func TestPaired(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		a, b []float64
		want Ratio
	}{
		{"none", nil, nil, Ratio{}},
		{"one", []float64{6}, []float64{2}, Ratio{3, 3, 3, 3, 3}},
		{"a round short, one without a value", []float64{6, 1, 8, 9}, []float64{2, 0, 2}, Ratio{4, 3, 4, 3, 4}},
		{"a machine that gets slower moves both", []float64{2, 20, 200}, []float64{1, 10, 100}, Ratio{2, 2, 2, 2, 2}},
	} {
		if have := Paired(c.a, c.b); have != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, have, c.want)
		}
	}
}

// TestInterval checks that the median's interval is inside the spread, and narrows with more rounds.
func TestInterval(t *testing.T) {
	t.Parallel()
	width := func(n int) float64 {
		v := make([]float64, n)
		for i := range v {
			v[i] = float64(i) / float64(n-1)
		}
		low, high := interval(v)
		if low > 0.5 || high < 0.5 {
			t.Errorf("%d values: the median is not within %g to %g", n, low, high)
		}
		return high - low
	}
	if a, b := width(20), width(2000); b > a/5 {
		t.Errorf("20 values: %g wide, 2000: %g", a, b)
	}
	if low, high := interval([]float64{3}); low != 3 || high != 3 {
		t.Errorf("of one value: %g to %g", low, high)
	}
}

// sample returns a report with all optional parts of rows present and absent.
func sample() Report {
	times := func(v ...float64) (s []Sample) {
		for _, x := range v {
			s = append(s, Sample{Time: x, CPU: x / 2})
		}
		return s
	}
	m := Measured{Group: "lists", Case: "bridge", Verb: "ADD", Jobs: 1, Sides: []string{"Fairlead", Reference, Floor, Nothing, "fused", "absent"},
		Samples: map[string][]Sample{"Fairlead": times(4, 5, 6), Reference: times(40, 50, 120), Floor: times(2, 2.5, 3), Nothing: times(1, 1, 1), "fused": times(3, 3, 3)},
		Peak:    map[string]int{"Fairlead": 5 << 10, Reference: 10 << 10}}
	rows := m.Rows()
	m.Case, m.Samples, m.Peak = "Fairlead <alone>", map[string][]Sample{"Fairlead": times(8)}, nil
	m.Group, m.Verb = "present", "DEL"
	return Report{Machine: "a machine", Rounds: 3, Rows: append(rows, m.Rows()...)}
}

func TestRows(t *testing.T) {
	t.Parallel()
	rows := sample().Rows
	if len(rows) != 3 || rows[0].By != "Fairlead" || rows[1].By != "fused" || rows[2].Reference != nil {
		t.Fatalf("rows %+v", rows)
	}
	r := rows[0]
	if r.Faster.Median != 10 || r.OverFloor.Median != 2 || r.OverNothing.Median != 5 || r.Memory != 0.5 || r.LessCPU.Median != 10 || r.Ours.Peak != 5<<10 {
		t.Errorf("row %+v", r)
	}
	if rows[1].Memory != 0 {
		t.Errorf("memory that was not measured: %+v", rows[1])
	}
}

// TestRowsAgainstFirst checks that a side without existing attachments is used for comparison and has no row.
func TestRowsAgainstFirst(t *testing.T) {
	t.Parallel()
	at := func(ms float64) []Sample { return []Sample{{Time: ms}} }
	m := Measured{Sides: []string{"Fairlead", "Fairlead" + First, Floor, Floor + First},
		Samples: map[string][]Sample{"Fairlead": at(6), "Fairlead" + First: at(5), Floor: at(3), Floor + First: at(2)}}
	rows := m.Rows()
	if len(rows) != 1 || rows[0].OverFirst != 1.2 || rows[0].FloorGrows != 1.5 {
		t.Errorf("%+v", rows)
	}
}

// TestRowsOfTheFloor checks that the comparison sides get rows if Fairlead took no part.
func TestRowsOfTheFloor(t *testing.T) {
	t.Parallel()
	m := Measured{Case: "c", Verb: "ADD", Sides: []string{Floor}, Samples: map[string][]Sample{Floor: {{Time: 2, CPU: 1}}}}
	rows := m.Rows()
	if len(rows) != 1 || rows[0].By != Floor || rows[0].Ours.Median != 2 || rows[0].Floor != nil {
		t.Fatalf("%+v", rows)
	}
	if text := Table(rows); !strings.Contains(text, "2.00") || strings.Contains(text, "Fairlead") {
		t.Errorf("the floor's own table:\n%s", text)
	}
}

func TestAgainstFirst(t *testing.T) {
	t.Parallel()
	row := func(name, verb, by string, ms float64) Row {
		return Row{Group: "g", Case: name, Verb: verb, By: by, Ours: Stat{Median: ms}}
	}
	rows := []Row{row("c, 0", "ADD", "a", 4), row("c, 9", "ADD", "a", 5), row("c, 9", "DEL", "a", 5), row("c, 9", "ADD", "b", 5), row("d, 9", "ADD", "a", 5)}
	rows[0].Floor, rows[1].Floor = &Stat{Median: 2}, &Stat{Median: 5}
	AgainstFirst(rows, "c", ", 0")
	if rows[1].FloorGrows != 2.5 || rows[2].FloorGrows != 0 {
		t.Errorf("the floor's growth: %+v", rows[:3])
	}
	if n := notes(rows[1:2]); n != "c, 9 ADD, a: 1.25 times the first; the floor 2.50 times its own.\n" {
		t.Errorf("note %q", n)
	}
	for i, want := range []float64{1, 1.25, 0, 0, 0} {
		if rows[i].OverFirst != want {
			t.Errorf("%+v: want %g", rows[i], want)
		}
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	r := sample()
	for _, c := range []struct {
		target  Target
		figure  string
		verdict string
	}{
		{Target{Limit: 10, Value: Faster("bridge", "ADD", "Fairlead")}, "10.0", "reached"},
		{Target{Limit: 11, Value: Faster("bridge", "ADD", "Fairlead")}, "10.0", "**not reached**"},
		{Target{Limit: 2, Most: true, Value: OverFloor("bridge", "ADD", "Fairlead")}, "2.00", "reached"},
		{Target{Limit: 1.9, Most: true, Value: OverFloor("bridge", "ADD", "Fairlead")}, "2.00", "**not reached**"},
		{Target{Limit: 0.5, Most: true, Value: Memory("bridge", "ADD", "Fairlead")}, "0.50", "reached"},
		{Target{Limit: 5, Most: true, Value: OverNothing("bridge", "ADD", "Fairlead")}, "5.00", "reached"},
		{Target{Limit: 1, Value: OverFirst("bridge", "ADD", "Fairlead")}, none, "not measured"},
		{Target{Limit: 1, Value: Faster("bridge", "DEL", "Fairlead")}, none, "not measured"},
		{Target{Limit: 1, Value: Faster("Fairlead <alone>", "DEL", "Fairlead")}, none, "not measured"},
	} {
		if figure, verdict := c.target.measured(r); figure != c.figure || verdict != c.verdict {
			t.Errorf("%+v: %s, %s; want %s, %s", c.target, figure, verdict, c.figure, c.verdict)
		}
	}
}

func TestMilliseconds(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0.123: "0.12", 9.876: "9.88", 12.34: "12.3", 123.4: "123", 5432.1: "5432"} {
		if have := ms(v); have != want {
			t.Errorf("%g: %s, want %s", v, have, want)
		}
	}
}

// TestGolden compares the terminal's text, the page and its charts with golden files. UPDATE=1 writes them.
func TestGolden(t *testing.T) {
	t.Parallel()
	r := sample()
	r.Rows[0].OverFirst = 1.05
	targets := []Target{{Text: "bridge: times as fast", Limit: 4, Value: Faster("bridge", "ADD", "Fairlead")}}
	files := r.Page(targets, Report{Machine: "an emulated machine", Rounds: 2, Rows: r.Rows[2:]})
	files["terminal.txt"] = r.Text(targets)
	for name, have := range files {
		golden := filepath.Join("testdata", name)
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(golden, []byte(have), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || have != string(want) {
			t.Errorf("%s (%v) is now\n%s", golden, err, have)
		}
	}
	if len(files) != 3 {
		t.Errorf("%d files, want the text, the page and a chart", len(files))
	}
}

func TestWriteRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "r.json")
	want := sample()
	if err := want.Write(file); err != nil {
		t.Fatal(err)
	}
	have, err := Read(file)
	if err != nil || have.Text(nil) != want.Text(nil) || !slices.Equal(have.Groups(), []string{"lists", "present"}) {
		t.Errorf("%v, %+v", err, have)
	}
	if err := os.WriteFile(file, []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(file); err == nil || !strings.Contains(err.Error(), "not a report") {
		t.Errorf("read a list as a report: %v", err)
	}
	if _, err := Read(file + "-none"); !os.IsNotExist(err) {
		t.Errorf("read a missing file: %v", err)
	}
}

// TestChart checks that a chart has both sets of colors, escapes text, and keeps bars within its width.
func TestChart(t *testing.T) {
	t.Parallel()
	c := Chart{Title: "a & b", Unit: "ms", Series: []string{"x", "y"}, Groups: []Group{{"one <1>", []Bar{{"x", 0.5}, {"y", 5000}}}, {"two", []Bar{{"y", 3}}}}}
	svg := c.SVG()
	light, dark := colours()
	for _, want := range []string{"a &amp; b", "one &lt;1&gt;", light[0], light[1], dark[0], dark[1], "prefers-color-scheme: dark"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %q in\n%s", want, svg)
		}
	}
	if n := strings.Count(svg, "<rect"); n != 5 {
		t.Errorf("%d boxes, want 3 bars and 2 of the legend", n)
	}
	many := Chart{Series: strings.Fields("a b c d e f g h i j"), Groups: []Group{{"x", []Bar{{"j", 1}}}}}
	if !strings.Contains(many.SVG(), `<rect class="s6" x="300"`) {
		t.Errorf("more series than colours: %s", many.SVG())
	}
	if c.longest() != 5000 || (Chart{}).longest() != 1 {
		t.Errorf("longest %g, of nothing %g", c.longest(), Chart{}.longest())
	}
	if !strings.Contains(svg, `y="81" width="490.0"`) || !strings.Contains(svg, `y="64" width="1.0"`) {
		t.Errorf("want the longest bar at full width and the shortest visible:\n%s", svg)
	}
	for _, m := range regexp.MustCompile(`x="300" y="\d+" width="([0-9.]+)"`).FindAllStringSubmatch(svg, -1) {
		if w, err := strconv.ParseFloat(m[1], 64); err != nil || w < 1 || w > chartWidth-labelWidth-valueSpace+0.01 {
			t.Errorf("a bar is %s wide", m[1])
		}
	}
}

// TestNewMeasurementsReplaceOld checks that new measurements replace old ones, and that new cases come last.
func TestNewMeasurementsReplaceOld(t *testing.T) {
	t.Parallel()
	row := func(name string, rounds int) Row { return Row{Group: "g", Case: name, Ours: Stat{Rounds: rounds}} }
	old := Report{Machine: "then", Rows: []Row{row("a", 1), row("a", 2), row("b", 1), row("b", 2), row("c", 1)}}
	have := old.With(Report{Machine: "now", Rows: []Row{row("b", 3), row("d", 3), row("d", 4)}})
	want := []Row{row("a", 1), row("a", 2), row("b", 3), row("c", 1), row("d", 3), row("d", 4)}
	if !slices.Equal(have.Rows, want) || have.Machine != "now" {
		t.Errorf("%s: %+v, want %+v", have.Machine, have.Rows, want)
	}
}
