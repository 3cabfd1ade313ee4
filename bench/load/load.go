// Package load is what the benchmark says to the programs that do the work it
// measures, and what they answer: a line of JSON each way, on standard input
// and output. Each such program stands for one side (ours, the reference, the
// kernel's floor) and lives in a host of its own.
//
// It imports the standard library only: the reference's side is a module of
// its own.
package load

// Job is one operation on one attachment.
type Job struct {
	Verb      string         `json:"verb"`             // ADD, CHECK, DEL
	List      string         `json:"list"`             // the network, as a conflist
	Only      string         `json:"only,omitempty"`   // the plugin whose time counts as the plugins'; "": all
	Floor     string         `json:"floor,omitempty"`  // the list in words of the floor's side, see bench/floor
	Starts    int            `json:"starts,omitempty"` // empty programs that the floor starts; 0: one
	Number    int            `json:"number"`           // of the attachment on this side, 0 to 65,000: tells addresses apart
	Container string         `json:"container"`
	Netns     string         `json:"netns"`
	IfName    string         `json:"ifname"`
	Runtime   map[string]any `json:"runtime,omitempty"` // capability arguments
}

// Request are jobs that are done so many at once.
type Request struct {
	Jobs   []Job `json:"jobs"`
	AtOnce int   `json:"atOnce,omitempty"` // 0: one
	Peak   bool  `json:"peak,omitempty"`   // measure the memory of processes, which costs time
}

// Answer is what it took.
type Answer struct {
	Each    []float64 `json:"each"`            // ms, of each job
	Plugins []float64 `json:"plugins"`         // ms of it, in plugins
	All     float64   `json:"all"`             // ms, from the first job's start to the last one's end
	CPU     float64   `json:"cpu"`             // ms, of the side's process and of every process it started
	Peak    int       `json:"peak,omitempty"`  // KiB, see Request.Peak
	Error   string    `json:"error,omitempty"` // of the first job that failed
}
