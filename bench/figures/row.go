package figures

import "strings"

// The sides that others are compared with.
const (
	Reference = "reference"                  // its runtime, its plugins
	Floor     = "floor"                      // an empty program's start, and the kernel's work
	Nothing   = "nothing"                    // as many empty programs, and no work
	EachEmpty = "floor of as many processes" // an empty program for each plugin of the list, and the kernel's work
)

// Row is one operation of one case by one side, beside the reference and the floor.
type Row struct {
	Group string `json:"group"`
	Case  string `json:"case"`
	Verb  string `json:"verb"`
	By    string `json:"by"`   // "ours" is plugins of ours as processes under the reference runtime
	Jobs  int    `json:"jobs"` // attachments that one time is of

	Ours      Stat  `json:"ours"`
	Reference *Stat `json:"reference,omitempty"`
	Floor     *Stat `json:"floor,omitempty"`

	Faster      *Ratio  `json:"timesAsFastAsTheReference,omitempty"`
	OverFloor   *Ratio  `json:"timesTheFloor,omitempty"`
	OverNothing *Ratio  `json:"timesAsLongAsNothing,omitempty"`
	OverEach    *Ratio  `json:"timesTheFloorOfAsManyProcesses,omitempty"`
	LessCPU     *Ratio  `json:"referenceCPUTimes,omitempty"`
	Memory      float64 `json:"memoryPart,omitempty"`         // of the reference's
	OverFirst   float64 `json:"timesTheFirst,omitempty"`      // median against that of the same with nothing standing or held
	FloorGrows  float64 `json:"floorTimesItsFirst,omitempty"` // the same of the floor: what the kernel itself takes more
}

// Measured are the samples of every side in one case and operation.
type Measured struct {
	Group, Case, Verb string
	Jobs              int
	Sides             []string // in order
	Samples           map[string][]Sample
	Peak              map[string]int // KiB
}

// Rows is a row of each side that is not there for comparison; of those that
// are if there is no other.
func (m Measured) Rows() (rows []Row) {
	var compared []string
	for _, side := range m.Sides {
		switch {
		case len(m.Samples[side]) == 0:
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
	r.OverFloor, r.OverNothing, r.OverEach = m.over(side, Floor), m.over(side, Nothing), m.over(side, EachEmpty)
	return r
}

func (m Measured) stat(side string) *Stat {
	s := Summary(m.Samples[side])
	s.Peak = m.Peak[side]
	return &s
}

// AgainstFirst sets how much rows of a growing case take of what its first
// level takes: their names begin with the case's.
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

// over is how many times as long a side takes as another, nil if that was not there.
func (m Measured) over(side, other string) *Ratio {
	if len(m.Samples[other]) == 0 {
		return nil
	}
	r := Paired(timesOf(m.Samples[side]), timesOf(m.Samples[other]))
	return &r
}
