package api

import (
	"encoding/binary"
	"math"

	"github.com/asrconfig/asrconfig-go/core/batching"
	"github.com/asrconfig/asrconfig-go/core/fault"
)

// durations are those of all clips: in the JSON, or attached as little-endian float64, as there may
// be a million.
type durations struct {
	Seconds []float64 `json:"seconds"`
}

// attach takes more durations in seconds, little-endian float64.
func (d *durations) attach(b []byte) error {
	if len(b)%8 != 0 {
		return fault.New(fault.InvalidArgument, "attach float64 numbers",
			"%d attached bytes are not a whole number of durations", len(b))
	}
	for offset := 0; offset < len(b); offset += 8 {
		d.Seconds = append(d.Seconds, math.Float64frombits(binary.LittleEndian.Uint64(b[offset:])))
	}
	return nil
}

type batchingArgs struct {
	durations
	Options batching.Options `json:"options"`
}

// compareBatching simulates an epoch with every strategy of making batches: what each computes,
// pads and takes.
func compareBatching(a batchingArgs) (batching.Comparison, error) {
	comparison, err := batching.Compare(a.Seconds, a.Options)
	if err != nil {
		return batching.Comparison{}, err
	}
	return *comparison, nil
}

// orderSteps orders the clips of one epoch and splits it into steps and micro-batches. Behind the
// zero byte of the answer: the order, indices of clips as little-endian uint32.
func orderSteps(a batchingArgs) (attachment[batching.Epoch], error) {
	epoch, err := batching.MakeEpoch(a.Seconds, a.Options)
	if err != nil {
		return attachment[batching.Epoch]{}, err
	}
	return attachment[batching.Epoch]{*epoch, 4 * len(epoch.Order), func(to []byte) {
		for i, number := range epoch.Order {
			binary.LittleEndian.PutUint32(to[4*i:], number)
		}
	}}, nil
}

type splitArgs struct {
	durations
	Memory batching.Limits `json:"memory"`
	batching.Cost
}

type split struct {
	MicroBatches [][]int `json:"micro_batches"` // indices of clips
}

// splitStep splits the clips of one step into micro-batches that fit the memory, and that take the
// least time.
func splitStep(a splitArgs) (split, error) {
	batches, err := batching.Split(a.Seconds, a.Memory, a.Cost)
	return split{batches}, err
}

type longestArgs struct {
	batchingArgs
	LimitsS []float64 `json:"limits_s"` // null: found from the table of memory
}

type longest struct {
	Longest []batching.Longest `json:"longest"`
}

// costOfLongest says for limits in seconds what the clips over them cost.
func costOfLongest(a longestArgs) (longest, error) {
	costs, err := batching.CostOfLongest(a.Seconds, a.Options, a.LimitsS)
	return longest{costs}, err
}
