package kerneltest

import "net"

// Listens returns an error unless a program accepts connections at a Unix socket. The file exists a moment before the
// program listens, so a test that waits for the file alone can come too early. See Eventually.
func Listens(socket string) error {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	return c.Close()
}
