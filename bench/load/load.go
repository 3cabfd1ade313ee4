// Package load defines the protocol between the benchmark and the programs that do the measured work. Request and
// answer are a line of JSON each, on standard input and output. Each program represents one side (Fairlead, the
// reference, the kernel's floor) and runs in its own host.
//
// It imports the standard library only, because the reference side is a separate module.
package load

// Job is one operation on one attachment.
type Job struct {
	Verb      string         `json:"verb"`             // ADD, CHECK, DEL
	List      string         `json:"list"`             // the network, as a conflist
	Only      string         `json:"only,omitempty"`   // count only this plugin's time as the plugins'; "": all
	Floor     string         `json:"floor,omitempty"`  // the list for the floor's side, see bench/floor
	Starts    int            `json:"starts,omitempty"` // empty programs that the floor starts; 0: one
	Number    int            `json:"number"`           // number of the attachment on this side, 0 to 65,000, for unique addresses
	Container string         `json:"container"`
	Netns     string         `json:"netns"`
	IfName    string         `json:"ifname"`
	Runtime   map[string]any `json:"runtime,omitempty"` // capability arguments
}

// Request is a list of jobs, AtOnce of them at a time.
type Request struct {
	Jobs   []Job `json:"jobs"`
	AtOnce int   `json:"atOnce,omitempty"` // 0: one
	Peak   bool  `json:"peak,omitempty"`   // measure the processes' memory, which takes time
}

// Answer is the cost of a request.
type Answer struct {
	Each    []float64 `json:"each"`            // ms per job
	Plugins []float64 `json:"plugins"`         // ms per job, in plugins
	All     float64   `json:"all"`             // ms, from the first job's start to the last job's end
	CPU     float64   `json:"cpu"`             // ms, of the side's process and all its children
	Peak    int       `json:"peak,omitempty"`  // KiB, see Request.Peak
	Error   string    `json:"error,omitempty"` // of the first job that failed
}
