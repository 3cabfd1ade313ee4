package kube

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// eachNode calls f for each Node, and returns the revision of the list. It decodes the answer while it arrives: that of a
// large cluster may have a hundred megabytes. One whole list costs the API server less than many pages.
func (s *Store) eachNode(ctx context.Context, f func(*corev1.Node)) (revision int64, err error) {
	ctx, end := context.WithTimeout(ctx, answerWithin)
	defer end()
	for next := ""; ; {
		r := s.core.Get().Resource("nodes").Timeout(answerWithin)
		body, err := r.VersionedParams(&metav1.ListOptions{Continue: next}, s.parameters).Stream(ctx)
		if err != nil {
			return 0, convert(err)
		}
		list, err := readNodes(body, f)
		body.Close()
		if err != nil {
			return 0, convert(fmt.Errorf("read a list of Nodes: %w", err))
		}
		if err := CheckList(list); err != nil {
			return 0, err
		}
		if next = list.Continue; next == "" { // a server that limits lists by itself sets it
			return number(list.ResourceVersion), nil
		}
	}
}

// protobufMagic begins a message in Kubernetes' encoding. These are the numbers of the fields that follow.
const (
	protobufMagic = "k8s\x00"
	unknownRaw    = 2 // runtime.Unknown: the encoded object
	listMeta      = 1 // v1.NodeList
	listItems     = 2
)

// largestField is more than the API stores in one object, in bytes.
const largestField = 64 << 20

// readNodes decodes a v1.NodeList in Kubernetes' protobuf encoding (k8s.io/apimachinery/pkg/runtime/generated.proto and
// k8s.io/api/core/v1/generated.proto), and calls f for each Node. client-go decodes a list only as a whole. A proxy in front of
// the API may have the list only in JSON.
func readNodes(r io.Reader, f func(*corev1.Node)) (meta metav1.ListMeta, err error) {
	in := &fields{Reader: bufio.NewReader(r)}
	if magic, _ := in.Peek(len(protobufMagic)); string(magic) != protobufMagic { // the decoder returns the error of an empty answer
		var list corev1.NodeList
		err := json.NewDecoder(in.Reader).Decode(&list)
		for i := range list.Items {
			f(&list.Items[i])
		}
		return list.ListMeta, err
	}
	_, _ = in.Discard(len(protobufMagic))
	size := uint64(0)
	for number := uint64(0); number != unknownRaw; {
		if err := in.skip(size); err != nil {
			return meta, err
		}
		if number, size, err = in.next(); err != nil {
			return meta, err
		}
	}
	for end := in.at + size; in.at < end; {
		number, size, err := in.next()
		if err != nil {
			return meta, err
		}
		switch number {
		case listMeta:
			err = in.decode(size, meta.Unmarshal)
		case listItems:
			n := &corev1.Node{}
			if err = in.decode(size, n.Unmarshal); err == nil {
				f(n)
			}
		default:
			err = in.skip(size)
		}
		if err != nil {
			return meta, err
		}
	}
	return meta, nil
}

// fields reads the fields of a protobuf message, each with a length (protobuf.dev/programming-guides/encoding). The end of
// the input is an error.
type fields struct {
	*bufio.Reader
	at     uint64 // bytes read
	buffer bytes.Buffer
}

// next reads the number and the length of a field.
func (in *fields) next() (number, size uint64, err error) {
	const withLength = 2
	tag, err := in.varint()
	if err == nil && tag&7 != withLength {
		err = fmt.Errorf("field %d is not a message", tag>>3)
	}
	if err == nil {
		size, err = in.varint()
	}
	if err == nil && size > largestField && tag>>3 != unknownRaw {
		err = fmt.Errorf("field %d has %d bytes", tag>>3, size)
	}
	return tag >> 3, size, err
}

func (in *fields) varint() (uint64, error) {
	v, err := binary.ReadUvarint(in)
	return v, unexpected(err)
}

// unexpected returns the error of an input that ends too early.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// ReadByte counts the byte.
func (in *fields) ReadByte() (byte, error) {
	in.at++
	return in.Reader.ReadByte()
}

func (in *fields) skip(size uint64) error {
	return in.decode(size, func([]byte) error { return nil })
}

// decode decodes a field of a size. The buffer is used again for the next one.
func (in *fields) decode(size uint64, f func([]byte) error) error {
	in.buffer.Reset()
	if _, err := io.CopyN(&in.buffer, in.Reader, int64(size)); err != nil {
		return unexpected(err)
	}
	in.at += size
	return f(in.buffer.Bytes())
}
