package podnetworks

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/agent/podstate"
)

// listMethod is the method of the kubelet that lists the resources of all pods (k8s.io/kubelet, podresources/v1).
const listMethod = "/v1.PodResourcesLister/List"

// maxAnswer is the largest answer in bytes. The kubelet's own limit for its clients is the same.
const maxAnswer = 16 << 20

// deviceIDs returns the IDs of the devices of a resource that the kubelet allocated to a pod.
func deviceIDs(ctx context.Context, socket string, args podstate.DevicesArgs) (ids []string, err error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var answer []byte
	if err := conn.Invoke(ctx, listMethod, []byte{}, &answer, grpc.ForceCodec(bytesCodec{}), grpc.MaxCallRecvMsgSize(maxAnswer)); err != nil {
		return nil, err
	}
	return devicesOf(answer, args)
}

// bytesCodec sends and receives messages as they are encoded.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }

func (bytesCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}

func (bytesCodec) Name() string { return "proto" }

// Field numbers of ListPodResourcesResponse, PodResources, ContainerResources and ContainerDevices.
const (
	listPods         = 1
	podName          = 1
	podNamespace     = 2
	podContainers    = 3
	containerDevices = 2
	devicesResource  = 1
	devicesIDs       = 2
)

// devicesOf returns the device IDs of one pod and resource in a ListPodResourcesResponse.
func devicesOf(message []byte, args podstate.DevicesArgs) (ids []string, err error) {
	pods, err := fieldsOf(message)
	if err != nil {
		return nil, err
	}
	for _, raw := range pods[listPods] {
		pod, err := fieldsOf(raw)
		if err != nil {
			return nil, err
		}
		if first(pod[podName]) != args.Name || first(pod[podNamespace]) != args.Namespace {
			continue
		}
		for _, raw := range pod[podContainers] {
			container, err := fieldsOf(raw)
			if err != nil {
				return nil, err
			}
			for _, raw := range container[containerDevices] {
				devices, err := fieldsOf(raw)
				if err != nil {
					return nil, err
				}
				for _, id := range devices[devicesIDs] {
					if first(devices[devicesResource]) == args.Resource {
						ids = append(ids, string(id))
					}
				}
			}
		}
	}
	return ids, nil
}

func first(values [][]byte) string {
	if len(values) == 0 {
		return ""
	}
	return string(values[0])
}

// fieldsOf returns the strings and messages in a message, by field number. It skips other fields.
func fieldsOf(message []byte) (map[protowire.Number][][]byte, error) {
	out := map[protowire.Number][][]byte{}
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil, fmt.Errorf("read the kubelet's answer: %w", protowire.ParseError(n))
		}
		message = message[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
				return nil, fmt.Errorf("read the kubelet's answer: %w", protowire.ParseError(n))
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return nil, fmt.Errorf("read the kubelet's answer: %w", protowire.ParseError(n))
		}
		out[number] = append(out[number], value)
		message = message[n:]
	}
	return out, nil
}
