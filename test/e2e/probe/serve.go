package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// readBuffer is the size of a UDP socket's buffer, in bytes. A packet takes about 800, and on a busy machine a program may
// wait for a second.
const readBuffer = 4 << 20

// serve answers on a TCP and a UDP port until SIGTERM, with the variable NAME or the host's name.
func serve(addr string) error {
	name := os.Getenv("NAME")
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return err
		}
	}
	tcp, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	udp, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	_ = udp.(*net.UDPConn).SetReadBuffer(readBuffer)
	go answer(udp, name)
	go accept(tcp, name)
	sleep()
	return nil
}

// answer echoes packets that start with a digit, and answers others with the server's name.
func answer(c net.PacketConn, name string) {
	buf := make([]byte, 64)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		if n > 0 && buf[0] >= '0' && buf[0] <= '9' {
			_, _ = c.WriteTo(buf[:n], from)
			continue
		}
		_, _ = fmt.Fprintf(sender{c, from}, "%s %s\n", name, from)
	}
}

type sender struct {
	net.PacketConn
	to net.Addr
}

func (s sender) Write(b []byte) (int, error) { return s.WriteTo(b, s.to) }

func accept(l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			r := bufio.NewReader(c)
			if word, _ := r.ReadString('\n'); word == "flood\n" {
				fmt.Fprintf(c, "%d\n", sink(r))
				return
			}
			fmt.Fprintf(c, "%s %s\n", name, c.RemoteAddr())
		}()
	}
}

// The duration of a flood, and the part at its end that is measured. Runtimes give token buckets a burst of half a
// gigabyte, which passes at full speed.
const (
	floodLasts  = 4 * time.Second
	floodCounts = 1500 * time.Millisecond
)

// sink reads for the duration of a flood and returns the bits per second of its last part.
func sink(r io.Reader) int64 {
	buf := make([]byte, 1<<20)
	start := time.Now()
	var counted int64
	for time.Since(start) < floodLasts {
		n, err := r.Read(buf)
		if err != nil {
			return 0
		}
		if time.Since(start) > floodLasts-floodCounts {
			counted += int64(n)
		}
	}
	return counted * 8 * int64(time.Second) / int64(floodCounts)
}

// flood sends as fast as possible to a server, and prints the bits per second that the server measured.
func flood(addr string) error {
	c, err := net.DialTimeout("tcp", addr, 2*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	go func() {
		_, _ = c.Write([]byte("flood\n"))
		buf := make([]byte, 1<<20)
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	}()
	_ = c.SetReadDeadline(time.Now().Add(4 * floodLasts))
	line, err := bufio.NewReader(c).ReadString('\n')
	fmt.Print(line)
	return err
}
