package model

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

// safetensorsFile is the length, the header and that many bytes of data.
func safetensorsFile(header string, data int) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), make([]byte, data)...)
}

func readBytes(raw []byte) (weights, error) {
	return readHeader(bytes.NewReader(raw), int64(len(raw)))
}

func TestHeaderCountsParameters(t *testing.T) {
	w, err := readBytes(safetensorsFile(`{"__metadata__": {"format": "pt"},
		"a.weight": {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]},
		"a.bias": {"dtype": "BF16", "shape": [4], "data_offsets": [48, 56]},
		"scale": {"dtype": "F16", "shape": [], "data_offsets": [56, 58]},
		"conv.weight": {"dtype": "F8_E4M3", "shape": [2, 3, 5], "data_offsets": [58, 88]},
		"position_ids": {"dtype": "I64", "shape": [1, 2], "data_offsets": [88, 104]},
		"norm.num_batches_tracked": {"dtype": "I64", "shape": [], "data_offsets": [104, 112]},
		"norm.running_mean": {"dtype": "F32", "shape": [2], "data_offsets": [112, 120]},
		"norm.running_var": {"dtype": "F32", "shape": [2], "data_offsets": [120, 128]}}   `, 128))
	require.NoError(t, err)
	require.Equal(t, uint64(12+4+1+30), w.elements)
	require.Equal(t, uint64((3+4)+4+1+2*(3+5)), w.factored)
}

func TestCorruptHeaders(t *testing.T) {
	one := func(entry string, data int) []byte { return safetensorsFile(`{"w": `+entry+`}`, data) }
	for _, c := range []struct {
		raw     []byte
		message string
	}{
		{nil, "ends within the length"}, {[]byte{1, 0, 0, 0}, "ends within the length"},
		{binary.LittleEndian.AppendUint64(nil, 9), "claims 9 bytes, the file has 8"},
		{append(binary.LittleEndian.AppendUint64(nil, 1<<63), make([]byte, 99)...), "claims 9223372036854775808 bytes"},
		{safetensorsFile(`[]`, 0), "not a JSON object"}, {safetensorsFile(`{"w"`, 0), "not a JSON object"},
		{one(`7`, 0), "the entry of w is invalid"}, {one(`{"dtype": "F32", "shape": [1.5], "data_offsets": [0, 4]}`, 4), "the entry of w"},
		{one(`{"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}`, 4), `unknown dtype "F33"`},
		{one(`{"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}`, 4), "has the shape [-1]"},
		{one(`{"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}`, 4), "has the shape"},
		{one(`{"dtype": "F32", "shape": [1125899906842625], "data_offsets": [0, 4]}`, 4), "has the shape"},
		{one(`{"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}`, 8), "1 elements of F32 lies at [0 8]"},
		{one(`{"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}`, 4), "in 4 bytes of data"},
		{one(`{"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}`, 8), "lies at [8 4]"},
		{one(`{"dtype": "F32", "shape": [1]}`, 4), "lies at []"},
	} {
		_, err := readBytes(c.raw)
		requireFault(t, err, fault.Corrupt, c.message)
	}
	_, err := readHeader(strings.NewReader(string(safetensorsFile(`{}`, 0)[:9])), 10)
	requireFault(t, err, fault.Corrupt, "ends within its header")
	_, err = readBytes(one(`{"dtype": "U8", "shape": [2, 2], "data_offsets": [0, 4]}`, 4))
	requireFault(t, err, fault.Unsupported, "quantized")
}

// Whatever the bytes, the parameters found never outnumber the bits that are there.
func FuzzSafetensorsHeader(f *testing.F) {
	f.Add(safetensorsFile(`{"w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}`, 16))
	f.Add(safetensorsFile(`{"w": {"dtype": "F16", "shape": [0, 9], "data_offsets": [0, 0]}, "__metadata__": {}}`, 0))
	f.Add(safetensorsFile(`{"w": {"dtype": "F32", "shape": [9223372036854775807, 2], "data_offsets": [0, 8]}}`, 8))
	f.Add(safetensorsFile(fmt.Sprintf(`{"w": %s}`, strings.Repeat("[", 20_000)), 0))
	f.Add(safetensorsFile(`{"w": {"dtype": "F32", "shape": [4611686018427387904, 0, 9], "data_offsets": [0, 0]}}`, 0))
	f.Add([]byte("PK\x03\x04 not safetensors"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		w, err := readBytes(raw)
		if err != nil {
			require.Contains(t, []fault.Code{fault.Corrupt, fault.Unsupported}, fault.From(err).Code)
			return
		}
		// two names may share bytes, hence one count per entry of at least 50 bytes
		require.LessOrEqual(t, w.elements, uint64(len(raw))*uint64(1+len(raw)/50))
		require.LessOrEqual(t, w.factored, 2*w.elements)
	})
}
