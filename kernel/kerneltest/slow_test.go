package kerneltest

import (
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// TestSlowScalesDurations checks the factor of virtual machines, which is a lower bound.
func TestSlowScalesDurations(t *testing.T) {
	for value, want := range map[string]time.Duration{"": time.Second, "16": 16 * time.Second, "0": time.Second, "x": time.Second} {
		t.Setenv("FAIRLEAD_SLOW", value)
		if got := Slow(time.Second); got < want || got > max(want, maxSlowness*time.Second) {
			t.Errorf("FAIRLEAD_SLOW=%s: %v", value, got)
		}
	}
}

func TestFactorOf(t *testing.T) {
	t.Parallel()
	for start, want := range map[time.Duration]float64{
		0: 1, time.Millisecond: 1, idleStart: 1, 2 * idleStart: 2, 5 * idleStart / 2: 2.5, time.Minute: maxSlowness,
	} {
		if got := factorOf(start); got != want {
			t.Errorf("%v: %v, want %v", start, got, want)
		}
	}
}

// TestSlownessOfBusyMachine keeps every processor busy with five programs. The measured slowness rises.
func TestSlownessOfBusyMachine(t *testing.T) {
	for range 5 * runtime.NumCPU() {
		busy := exec.Command("sh", "-c", "while :; do :; done")
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = busy.Process.Kill(); _ = busy.Wait() })
	}
	var most float64
	for end := time.Now().Add(20 * time.Second); most <= 1 && time.Now().Before(end); {
		most = max(most, slowness())
	}
	t.Logf("slowness %.1f", most)
	if most <= 1 {
		t.Error("a busy machine counts as idle")
	}
}
