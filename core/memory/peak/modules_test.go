package peak

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestModuleRows(t *testing.T) {
	names := []string{"", "lm_head", "w.encoder.layers.0.attention.q", "w.encoder.layers.0.attention.k", "w.encoder.layers.10.mlp", "w.encoder.pos_conv.conv.weight", "w.decoder.layers.0"}
	bytes := []uint64{1, 0, 20, 30, 400, 5000, 60000}
	require.Equal(t, []ModuleBytes{{"w.decoder.layers.0", 60000}, {"w.encoder.pos_conv", 5000}, {"w.encoder.layers.10", 400}, {"w.encoder.layers.0", 50}, {"", 1}},
		ModuleRows(Layers(names), bytes, 5))
	require.Equal(t, []ModuleBytes{{"w.decoder.layers.*", 60000}, {"w.encoder.pos_conv", 5000}, {"w.encoder.layers.*", 450}, {"", 1}},
		ModuleRows(Layers(names), bytes, 4))
	require.Equal(t, []ModuleBytes{{"w.decoder.layers.*", 60000}, {"…", 5451}}, ModuleRows(Layers(names), bytes, 2))
	require.Equal(t, []ModuleBytes{{"…", 65451}}, ModuleRows(Layers(names), bytes, 1))
}
