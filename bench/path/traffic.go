package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// traffic runs both endpoints of what iperf3 does not measure:
//
//	path serve ADDR                  answers each byte with one byte, over TCP
//	path ask rr|connect ADDR TIME    prints the rate per second
func traffic(args []string) error {
	if args[0] == "serve" {
		return serve(args[1])
	}
	length, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	once := map[string]func(string) (func() error, error){"rr": requests, "connect": connections}[args[1]]
	ask, err := once(args[2])
	if err != nil {
		return err
	}
	n, start := 0, time.Now()
	for time.Since(start) < length {
		if err := ask(); err != nil {
			return err
		}
		n++
	}
	fmt.Println(float64(n) / time.Since(start).Seconds())
	return nil
}

func serve(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			b := make([]byte, 1)
			for {
				if _, err := c.Read(b); err != nil {
					return
				}
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		}()
	}
}

// requests sends all requests over one connection.
func requests(addr string) (func() error, error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	return func() error { return exchange(c) }, err
}

func exchange(c net.Conn) error {
	b := []byte{1}
	if _, err := c.Write(b); err != nil {
		return err
	}
	_, err := io.ReadFull(c, b)
	return err
}

// connections opens a connection per request, and resets it, so that no port stays in TIME_WAIT.
func connections(addr string) (func() error, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	return func() error {
		c, err := d.Dial("tcp", addr)
		if err != nil {
			return err
		}
		err = exchange(c)
		return errors.Join(err, c.(*net.TCPConn).SetLinger(0), c.Close())
	}, nil
}
