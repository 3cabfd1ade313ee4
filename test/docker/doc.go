// Package docker tests the driver for Docker with a real dockerd, on hosts of their own: make e2e-docker.
package docker
