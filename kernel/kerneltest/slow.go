package kerneltest

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Slow returns the time limit for something that takes at most d on an idle machine. It measures how slow this machine
// is now. Virtual machines set FAIRLEAD_SLOW to their own factor, because they are slow even if idle.
func Slow(d time.Duration) time.Duration {
	factor := slowness()
	if by, err := strconv.Atoi(os.Getenv("FAIRLEAD_SLOW")); err == nil {
		factor = max(factor, float64(by))
	}
	return time.Duration(float64(d) * factor)
}

const (
	idleStart   = 5 * time.Millisecond   // an idle machine starts a program in less
	maxSlowness = 8                      // a test must end on a machine that hangs
	measurement = 300 * time.Millisecond // how long one is used
)

// lastSlowness is the last measurement.
var lastSlowness struct {
	sync.Mutex
	factor float64
	at     time.Time
}

// slowness returns how many times longer than an idle machine this one takes to start a program that takes the kernel's
// network lock and changes nothing. Most tests need that: a processor, memory, the scheduler and the lock, for which the
// kernel's own work on IPv6 addresses also waits. It returns 1 to maxSlowness.
func slowness() float64 {
	last := &lastSlowness
	last.Lock()
	defer last.Unlock()
	if time.Since(last.at) > measurement {
		last.factor, last.at = measureSlowness(), time.Now()
	}
	return last.factor
}

func measureSlowness() float64 {
	var times []time.Duration
	for range 3 {
		start := time.Now()
		_ = exec.Command("ip", "link", "set", "dev", "lo").Run() // only the time counts
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	return factorOf(times[1])
}

// factorOf returns the slowness of a machine that starts a program in the given time.
func factorOf(start time.Duration) float64 {
	return min(max(float64(start)/float64(idleStart), 1), maxSlowness)
}
