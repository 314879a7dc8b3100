package device

import (
	"testing"

	"github.com/goccy/go-json"
	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

func TestDescribeFromTheTable(t *testing.T) {
	terms, err := Describe(Request{GPU: gpu("Tesla T4", "7.5")})
	require.NoError(t, err)
	require.Equal(t, uint64(121*mib), terms.ContextBytes) // 31 + 2.25 x 40 MiB
	require.Zero(t, terms.NCCLBytes)
	require.Equal(t, []uint64{uint64(121 * mib * 3 / 4), uint64(121 * mib * 13 / 10)}, []uint64{terms.Low, terms.High})
	require.Equal(t, "table", terms.Source)
	require.Contains(t, terms.Note, "40 multiprocessors of 1024 threads")
	require.Len(t, terms.Figures, 1)
	require.NotEmpty(t, terms.Figures[0].References)

	unknown, err := Describe(Request{GPU: gpu("NVIDIA RTX A2000", "8.6")})
	require.NoError(t, err)
	require.Contains(t, unknown.Note, "16 to 84 multiprocessors (the card is not listed)")
	require.Less(t, unknown.Low, uint64(70*mib))
	require.Greater(t, unknown.High, uint64(400*mib))
}

func TestDescribeMeasured(t *testing.T) {
	used, reserved := uint64(2000*mib), uint64(1850*mib)
	request := Request{GPU: gpu("Tesla T4", "7.5"), ProcessUsedBytes: &used, TorchReservedBytes: &reserved}
	terms, err := Describe(request)
	require.NoError(t, err)
	require.Equal(t, []uint64{150 * mib, 150 * mib, 214 * mib}, []uint64{terms.ContextBytes, terms.Low, terms.High})
	require.Equal(t, "measured", terms.Source)
	require.Equal(t, "measured: 2000 MiB in use by the process less 1850 MiB reserved by PyTorch", terms.Note)

	for difference, doubt := range map[uint64]string{10: "at least 90 MiB", 900: "at most 157 MiB"} {
		used = reserved + difference*mib
		terms, err = Describe(request)
		require.NoError(t, err)
		require.Equal(t, difference*mib, terms.ContextBytes, "a doubtful measurement stays one")
		require.Contains(t, terms.Note, "doubtful: the table says "+doubt)
	}
}

func TestDescribeNCCL(t *testing.T) {
	two, used, reserved := 2, uint64(1000*mib), uint64(0)
	request := Request{GPU: gpu("NVIDIA A100-SXM4-80GB", "8.0"), NCCL: true}
	terms, err := Describe(request)
	require.NoError(t, err)
	require.Equal(t, uint64(688_000_000), terms.NCCLBytes)
	require.Len(t, terms.Figures, 2)
	require.Equal(t, terms.Figures[0].High+terms.Figures[1].High, terms.High)
	require.Equal(t, terms.Figures[0].Low+terms.Figures[1].Low, terms.Low)

	request.GPUs = &two
	terms, err = Describe(request)
	require.NoError(t, err)
	require.Equal(t, uint64(544_000_000), terms.NCCLBytes)

	request.ProcessUsedBytes, request.TorchReservedBytes, request.NCCLIncluded = &used, &reserved, true
	terms, err = Describe(request)
	require.NoError(t, err)
	require.Zero(t, terms.NCCLBytes, "it is in the measured context already")
	require.Equal(t, used, terms.ContextBytes)
}

func TestDescribeRefuses(t *testing.T) {
	small, large, none := uint64(1), uint64(2), 0
	t4 := gpu("Tesla T4", "7.5")
	for message, request := range map[string]Request{
		`compute capability "ampere"`:  {GPU: gpu("Tesla T4", "ampere")},
		`version of PyTorch "nightly"`: {GPU: t4, Torch: "nightly"},
		"needs process_used_bytes":     {GPU: t4, ProcessUsedBytes: &small},
		"less than the 2":              {GPU: t4, ProcessUsedBytes: &small, TorchReservedBytes: &large},
		"0 multiprocessors":            {GPU: GPU{GPU: t4.GPU, SMs: &none}},
	} {
		_, err := Describe(request)
		require.ErrorContains(t, err, message)
		require.Equal(t, fault.InvalidArgument, fault.From(err).Code)
	}
}

// The request takes a GPU of the hardware profile as it is, with or without its multiprocessors.
func TestRequestReadsAProfile(t *testing.T) {
	var request Request
	require.NoError(t, json.Unmarshal([]byte(`{"gpu":{"name":"Tesla T4","compute_capability":"7.5","processes":[],"sms":40},"nccl":true}`), &request))
	require.Equal(t, "Tesla T4", request.GPU.Name)
	require.Equal(t, 40, *request.GPU.SMs)
	text, err := json.Marshal(Terms{})
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	for _, name := range []string{"context_bytes", "nccl_bytes", "low", "high", "source", "note", "figures", "workspaces"} {
		require.Contains(t, fields, name)
	}
}

func TestWorkspaces(t *testing.T) {
	const small, hopper = 8_519_680, 33_554_432
	for _, row := range []struct {
		capability, torch string
		bytes             uint64
		kept              bool
	}{
		{"8.6", "", small, false}, {"9.0", "", hopper, false}, {"10.0", "2.15.0+cu132", hopper, false}, {"8.9", "2.15.0", small, false},
		{"11.0", "2.14.1", hopper, true}, {"11.0", "2.13.0", small, true}, {"12.0", "2.12.0", hopper, true},
		{"12.0", "2.11.0", small, true}, {"9.0", "2.0.1", hopper, true}, {"7.5", "2.6", small, true}, {"9.0", "2.16.0.dev", hopper, false},
		{"9.0", "1.13.1", 4 * mib, true}, {"3.7", "1.12.0", 0, false}, {"8.0", "3.0", small, false},
	} {
		w, err := WorkspacesOf(row.capability, row.torch)
		require.NoError(t, err)
		require.Equal(t, row.bytes, w.CuBLASBytes, row)
		require.Equal(t, row.kept, w.Kept, row)
		require.NotEmpty(t, w.Source)
	}
	for _, capability := range []string{"", "8", "x.y", "-1.0"} {
		_, err := WorkspacesOf(capability, "")
		require.ErrorContains(t, err, "compute capability", capability)
	}
}
