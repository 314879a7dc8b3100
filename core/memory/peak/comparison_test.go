package peak

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const mib = 1 << 20

// row is one of a table; less than 0 predicted: nothing is.
func row(component, module string, measured, predicted int64) Row {
	r := Row{Component: component, Module: module, Held: uint64(measured) * mib}
	if predicted >= 0 {
		bytes := uint64(predicted) * mib
		r.Predicted = &bytes
	}
	return r
}

func TestCompare(t *testing.T) {
	weights := []Holding{{"parameters", "w.layers.0.q", 5 * mib}, {"parameters", "w.layers.1.q", 5 * mib}, {"parameters", "head", mib}}
	layers := []Holding{{"others", "w.layers.0.q", 7 * mib}, {"activations", "w.layers.0.k", mib}, {"temporaries", "w.layers.1", 9 * mib}, {"inputs", "", 2 * mib}}
	nameless := []Holding{{"others", "", 30 * mib}}
	for name, test := range map[string]struct {
		held, predicted []Holding
		most            int
		want            []Row
	}{
		"a component as predicted is one row": {weights, weights, 9, []Row{row("parameters", "*", 11, 11)}},
		"a difference has a row for each part": {append(weights[:2:2], Holding{"parameters", "head", 4 * mib}), weights, 9,
			[]Row{row("parameters", "head", 4, 1), row("parameters", "w.layers.0", 5, 5), row("parameters", "w.layers.1", 5, 5)}},
		"less than 1 MiB is none":       {append(weights[:2:2], Holding{"parameters", "head", 2*mib - 1}), weights, 9, []Row{{"parameters", "*", 12*mib - 1, row("", "", 0, 11).Predicted}}},
		"modules of both, by layer":     {layers, []Holding{{"activations", "w.layers.0.q", 3 * mib}, {"activations", "head", mib}}, 9, []Row{row("others", "w.layers.1", 9, 0), row("others", "w.layers.0", 8, 3), row("others", "", 2, 0), row("others", "head", 0, 1)}},
		"layers together where many":    {layers, layers[:1], 2, []Row{row("others", "w.layers.*", 17, 7), row("others", "", 2, 0)}},
		"the rest in one row":           {append(layers[:4:4], Holding{"buffers", "b", mib}), layers[:1], 2, []Row{row("others", "w.layers.*", 17, 7), row("…", "*", 3, 0)}},
		"a run without modules":         {append(weights[:3:3], nameless...), append(weights[:3:3], layers...), 9, []Row{row("others", "*", 30, 19), row("parameters", "*", 11, 11)}},
		"nothing predicted":             {append(weights[:3:3], nameless...), nil, 9, []Row{row("others", "*", 30, -1), row("parameters", "w.layers.0", 5, -1), row("parameters", "w.layers.1", 5, -1), row("parameters", "head", 1, -1)}},
		"nothing predicted, and little": {weights, nil, 1, []Row{row("…", "*", 11, -1)}},
		"nothing held":                  {nil, nil, 9, []Row{}},
	} {
		t.Run(name, func(t *testing.T) {
			rows := Compare(test.held, test.predicted, test.most)
			require.Equal(t, test.want, rows)
			sum := uint64(0)
			for _, r := range rows {
				sum += r.Held
			}
			require.Equal(t, Sum(test.held), sum)
		})
	}
}

func TestModuleRows(t *testing.T) {
	names := []string{"", "lm_head", "w.encoder.layers.0.attention.q", "w.encoder.layers.0.attention.k", "w.encoder.layers.10.mlp", "w.encoder.pos_conv.conv.weight", "w.decoder.layers.0"}
	bytes := []uint64{1, 0, 20, 30, 400, 5000, 60000}
	require.Equal(t, []ModuleBytes{{"w.decoder.layers.0", 60000}, {"w.encoder.pos_conv", 5000}, {"w.encoder.layers.10", 400}, {"w.encoder.layers.0", 50}, {"", 1}},
		ModuleRows(names, bytes, 5))
	require.Equal(t, []ModuleBytes{{"w.decoder.layers.*", 60000}, {"w.encoder.pos_conv", 5000}, {"w.encoder.layers.*", 450}, {"", 1}},
		ModuleRows(names, bytes, 4))
	require.Equal(t, []ModuleBytes{{"w.decoder.layers.*", 60000}, {"…", 5451}}, ModuleRows(names, bytes, 2))
	require.Equal(t, []ModuleBytes{{"…", 65451}}, ModuleRows(names, bytes, 1))
}
