package kernel

// Carried is the host's end of a pair that carries packets. The end that came up
// first drops all until a worker has seen its carrier, which on a host with much to
// do takes seconds. From kernel 6.9 on a question after the link has that done at
// once; before, this waits for it, and after a while no longer.
type WaitForCarrier struct {
	base
	Link string
}

func (c *WaitForCarrier) kind() string   { return "carried" }
func (c *WaitForCarrier) Side() Side     { return Host }
func (c *WaitForCarrier) Shared() bool   { return false }
func (c *WaitForCarrier) on() linkName   { return linkName{Host, c.Link} }
func (c *WaitForCarrier) String() string { return "ip link show " + c.Link }

func (c *WaitForCarrier) ensure(e *Engine) error {
	_, err := e.waitForLink(c.Link, (*LinkInfo).operational)
	return err
}

// diff finds nothing: that it is up is another object's.
func (c *WaitForCarrier) diff(*Engine) ([]string, error) { return nil, nil }
func (c *WaitForCarrier) remove(*Engine) error           { return nil }
