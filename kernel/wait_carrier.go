package kernel

// WaitForCarrier waits until the host end of a pair carries packets. The end that came up first drops packets until a
// kernel worker has seen its carrier, which takes seconds on a busy host. Since kernel 6.9, reading the link makes the
// kernel check the carrier at once. On older kernels this object waits for a limited time.
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

// diff returns nothing: Up reports a link that is down.
func (c *WaitForCarrier) diff(*Engine) ([]string, error) { return nil, nil }
func (c *WaitForCarrier) remove(*Engine) error           { return nil }
