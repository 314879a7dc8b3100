package main

import (
	"fmt"

	"github.com/asrconfig/asrconfig-go/core/profile"
	"github.com/asrconfig/asrconfig-go/core/timing/kernel"
)

// classes of memory-bound kernels, with the operators that stand for each and the tensors that they read and write.
var classes = []struct {
	name      string
	kind      kernel.Kind
	operators map[string]float64
	streaming float64 // from how many bytes on a row tells the bandwidth of the memory and not of a cache
	rows      func(length int64) bool
}{
	{"elementwise", kernel.Elementwise, map[string]float64{"add": 3, "mul": 3, "gelu": 2, "tanh": 2, "addu": 2, "relu": 2}, 4e8, func(int64) bool { return true }},
	{"softmax_1024", kernel.Softmax, map[string]float64{"softmax": 2}, 4e7, func(length int64) bool { return length <= 1024 }},
	{"softmax", kernel.Softmax, map[string]float64{"softmax": 2}, 4e7, func(length int64) bool { return length > 1024 && length <= longestRow }},
	{"normalization", kernel.Normalization, map[string]float64{"ln": 2}, 4e7, func(int64) bool { return true }},
}

// longestRow is that of the longest sequences that models have.
const longestRow = 4096

// fewest rows tell a share.
const fewest = 10

// fitMemory gives the share of the published bandwidth that each class reaches.
func fitMemory(from tables, card kernel.Card, residuals map[string]profile.Range) (map[string]float64, error) {
	shares := map[string]float64{}
	for _, class := range classes {
		var all []row
		for operator, tensors := range class.operators {
			rows, err := from.moved(operator, class.kind, tensors)
			if err != nil {
				return nil, err
			}
			launch := launching(rows)
			for _, r := range rows {
				r.seconds -= launch
				if r.operation.Bytes() > class.streaming && class.rows(r.operation.Row) {
					all = append(all, r)
				}
			}
		}
		if len(all) < fewest {
			return nil, fmt.Errorf("%d rows of %s are too few", len(all), class.name)
		}
		reached := spread(all, func(r row) float64 { return r.operation.Bytes() / card.Bandwidth })
		shares[class.name] = rounded(min(1/reached.Likely, 0.95))
		residuals[class.name] = spread(all, func(r row) float64 { return r.operation.Bytes() / card.Bandwidth / shares[class.name] })
	}
	return shares, nil
}

// fitConvolutions is how many times longer than their products convolutions of 1 GFLOP and more take.
func fitConvolutions(rows []row, card kernel.Card, e kernel.Efficiency) (float64, profile.Range) {
	_, held := split(rows, func(r row) bool { return r.operation.FLOPs() > 1e9 })
	ratio := spread(held, func(r row) float64 { return e.Seconds(r.operation, card, card.FP32) })
	return ratio.Likely, profile.Range{Low: rounded(ratio.Low / ratio.Likely), Likely: 1, High: rounded(ratio.High / ratio.Likely)}
}
