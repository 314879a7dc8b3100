package api

import (
	"encoding/binary"
	"math"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// durations are those of all clips: in the JSON, or attached as little-endian float64, as there may be a million.
type durations struct {
	Seconds []float64 `json:"seconds"`
}

func (d *durations) attach(b []byte) error {
	if len(b)%8 != 0 {
		return fault.New(fault.InvalidArgument, "attach float64 numbers", "%d attached bytes are no whole number of durations", len(b))
	}
	for at := 0; at < len(b); at += 8 {
		d.Seconds = append(d.Seconds, math.Float64frombits(binary.LittleEndian.Uint64(b[at:])))
	}
	return nil
}

type batchingArgs struct {
	durations
	Options batching.Options `json:"options"`
}

func compareBatching(a batchingArgs) (any, error) { return batching.Compare(a.Seconds, a.Options) }

// orderSteps attaches the order of the clips, as little-endian uint32.
func orderSteps(a batchingArgs) (any, error) {
	epoch, err := batching.MakeEpoch(a.Seconds, a.Options)
	if err != nil {
		return nil, err
	}
	return attachment{epoch, 4 * len(epoch.Order), func(to []byte) {
		for i, number := range epoch.Order {
			binary.LittleEndian.PutUint32(to[4*i:], number)
		}
	}}, nil
}

type splitArgs struct {
	durations
	Memory    batching.Limits `json:"memory"`
	OverheadS float64         `json:"overhead_s"`
}

func splitStep(a splitArgs) (any, error) {
	batches, err := batching.Split(a.Seconds, a.Memory, a.OverheadS)
	return map[string]any{"micro_batches": batches}, err
}

type longestArgs struct {
	batchingArgs
	LimitsS []float64 `json:"limits_s"` // null: found from the table of memory
}

func costOfLongest(a longestArgs) (any, error) {
	found, err := batching.CostOfLongest(a.Seconds, a.Options, a.LimitsS)
	return map[string]any{"longest": found}, err
}
