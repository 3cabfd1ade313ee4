package figures

import "strings"

// These sides are what others are compared with.
const (
	Reference = "reference"                  // the reference runtime and plugins
	Floor     = "floor"                      // start of an empty program, and the kernel's work
	Nothing   = "nothing"                    // as many empty programs, without kernel work
	EachEmpty = "floor of as many processes" // an empty program per plugin of the list, and the kernel's work
)

// First is the suffix of a side that does the same on a host without existing attachments.
const First = ", at first"

// Row is one operation of one case by one side, compared with the reference and the floor.
type Row struct {
	Group string `json:"group"`
	Case  string `json:"case"`
	Verb  string `json:"verb"`
	By    string `json:"by"`   // "Fairlead" is its plugins as processes under the reference runtime
	Jobs  int    `json:"jobs"` // attachments per measured time

	Ours      Stat  `json:"ours"`
	Reference *Stat `json:"reference,omitempty"`
	Floor     *Stat `json:"floor,omitempty"`

	Faster      *Ratio  `json:"timesAsFastAsTheReference,omitempty"`
	OverFloor   *Ratio  `json:"timesTheFloor,omitempty"`
	OverNothing *Ratio  `json:"timesAsLongAsNothing,omitempty"`
	OverEach    *Ratio  `json:"timesTheFloorOfAsManyProcesses,omitempty"`
	LessCPU     *Ratio  `json:"referenceCPUTimes,omitempty"`
	FloorCPU    *Ratio  `json:"timesTheFloorsCPU,omitempty"`
	EachCPU     *Ratio  `json:"timesTheCPUOfTheFloorOfAsManyProcesses,omitempty"`
	Memory      float64 `json:"memoryPart,omitempty"`         // as a fraction of the reference's memory
	OverFirst   float64 `json:"timesTheFirst,omitempty"`      // compared with the same on an empty host: by pairs, or by medians
	FloorGrows  float64 `json:"floorTimesItsFirst,omitempty"` // the same ratio for the floor: growth of the kernel's own time
}

// Measured is the samples of every side in one case and operation.
type Measured struct {
	Group, Case, Verb string
	Jobs              int
	Sides             []string // in order
	Samples           map[string][]Sample
	Peak              map[string]int // KiB
}

// Rows returns a row for each side except the comparison sides. If there are only comparison sides, it returns theirs.
func (m Measured) Rows() (rows []Row) {
	var compared []string
	for _, side := range m.Sides {
		switch {
		case len(m.Samples[side]) == 0 || strings.HasSuffix(side, First):
		case side == Reference || side == Floor || side == Nothing || side == EachEmpty:
			compared = append(compared, side)
		default:
			rows = append(rows, m.row(side))
		}
	}
	if len(rows) == 0 {
		for _, side := range compared {
			rows = append(rows, Row{Group: m.Group, Case: m.Case, Verb: m.Verb, By: side, Jobs: m.Jobs, Ours: *m.stat(side)})
		}
	}
	return rows
}

func (m Measured) row(side string) Row {
	r := Row{Group: m.Group, Case: m.Case, Verb: m.Verb, By: side, Jobs: m.Jobs, Ours: *m.stat(side)}
	own := m.Samples[side]
	if ref := m.Samples[Reference]; len(ref) > 0 {
		r.Reference = m.stat(Reference)
		faster, cpu := Paired(timesOf(ref), timesOf(own)), Paired(cpuOf(ref), cpuOf(own))
		r.Faster, r.LessCPU = &faster, &cpu
		if m.Peak[side] > 0 {
			r.Memory = float64(m.Peak[side]) / float64(max(1, m.Peak[Reference]))
		}
	}
	if len(m.Samples[Floor]) > 0 {
		r.Floor = m.stat(Floor)
	}
	if first := m.over(side, side+First, timesOf); first != nil {
		r.OverFirst = first.Median
	}
	if first := m.over(Floor, Floor+First, timesOf); first != nil {
		r.FloorGrows = first.Median
	}
	r.OverFloor, r.OverNothing, r.OverEach = m.over(side, Floor, timesOf), m.over(side, Nothing, timesOf), m.over(side, EachEmpty, timesOf)
	r.FloorCPU, r.EachCPU = m.over(side, Floor, cpuOf), m.over(side, EachEmpty, cpuOf)
	return r
}

func (m Measured) stat(side string) *Stat {
	s := Summary(m.Samples[side])
	s.Peak = m.Peak[side]
	return &s
}

// AgainstFirst sets the ratio of each row of a growing case to the case's first level. The rows' names begin with the
// case's name.
func AgainstFirst(rows []Row, name, firstLevel string) {
	for _, base := range rows {
		if base.Case != name+firstLevel || base.Ours.Median == 0 {
			continue
		}
		for i := range rows {
			r := &rows[i]
			if r.Group == base.Group && r.Verb == base.Verb && r.By == base.By && strings.HasPrefix(r.Case, name) {
				r.OverFirst = r.Ours.Median / base.Ours.Median
				if r.Floor != nil && base.Floor != nil && base.Floor.Median > 0 {
					r.FloorGrows = r.Floor.Median / base.Floor.Median
				}
			}
		}
	}
}

// over returns the ratio of a side's times or CPU times to another's, or nil if the other was not measured.
func (m Measured) over(side, other string, of func([]Sample) []float64) *Ratio {
	if len(m.Samples[side]) == 0 || len(m.Samples[other]) == 0 {
		return nil
	}
	r := Paired(of(m.Samples[side]), of(m.Samples[other]))
	return &r
}
