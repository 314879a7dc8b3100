package analytic

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/model"
)

func ptr[T any](v T) *T { return &v }

func named(name string) model.Request { return model.Request{Name: name} }

func TestBadRequests(t *testing.T) {
	tests := []struct {
		name    string
		change  func(*Request)
		code    fault.Code
		message string
	}{
		{"no clips", func(r *Request) { r.Batch = 0 }, fault.InvalidArgument, "batch is 0; the range is 1 to 65536"},
		{"too many clips", func(r *Request) { r.Batch = 1 << 20 }, fault.InvalidArgument, "batch is 1048576"},
		{"a negative duration", func(r *Request) { r.Seconds = -1 }, fault.InvalidArgument, "seconds is -1; the range is above 0 to 86400"},
		{"no number", func(r *Request) { r.Seconds = math.NaN() }, fault.InvalidArgument, "seconds is NaN"},
		{"longer than a day", func(r *Request) { r.Seconds = 1e9 }, fault.InvalidArgument, "seconds is 1e+09"},
		{"shorter than a frame", func(r *Request) { r.Seconds = 0.02 }, fault.InvalidArgument, "0.02 s of audio are too short"},
		{"negative labels", func(r *Request) { r.Labels = ptr(int64(-1)) }, fault.InvalidArgument, "labels is -1"},
		{"a precision of another kind", func(r *Request) { r.Precision = "fp8" }, fault.InvalidArgument, `precision is "fp8"; it must be one of fp32, fp16, bf16`},
		{"an attention of another kind", func(r *Request) { r.Attention = "ring" }, fault.InvalidArgument, `attention is "ring"; it must be one of sdpa, eager`},
		{"an unknown optimizer", func(r *Request) { r.Optimizer = "lion" }, fault.Unsupported, `the memory of optimizer "lion" is not known`},
		{"no compute capability", func(r *Request) { r.ComputeCapability = "hopper" }, fault.InvalidArgument, `compute_capability is "hopper"; it must look like 8.0`},
		{"no version of PyTorch", func(r *Request) { r.Torch = "nightly" }, fault.InvalidArgument, `version of PyTorch "nightly"`},
		{"a GPU of no multiprocessors", func(r *Request) { r.Multiprocessors = ptr(0) }, fault.InvalidArgument, "multiprocessors is 0; the range is 1 to 1024"},
		{"negative accumulation", func(r *Request) { r.Accumulation = -2 }, fault.InvalidArgument, "accumulation is -2"},
		{"a depth below every layer", func(r *Request) { r.Checkpointing, r.EveryNLayers = true, -1 }, fault.InvalidArgument, "every_n_layers is -1; the range is 1 to 65536"},
		{"a depth without checkpointing", func(r *Request) { r.EveryNLayers = 2 }, fault.InvalidArgument, "every_n_layers is 2 without checkpointing"},
		{"offloaded checkpoints without checkpointing", func(r *Request) { r.OffloadCheckpoints = true }, fault.InvalidArgument, "offload_checkpoints is true without checkpointing"},
		{"a limit of nothing", func(r *Request) { r.LimitBytes = ptr(int64(0)) }, fault.InvalidArgument, "limit_bytes is 0"},
		{"a negative context", func(r *Request) { r.DeviceBytes = ptr(int64(-1)) }, fault.InvalidArgument, "device_bytes is -1"},
		{"allocator settings of another kind", func(r *Request) { r.Settings = "max_split_size_mb:tiny" }, fault.InvalidArgument, "max_split_size_mb"},
		{"beyond Whisper's positions", func(r *Request) { r.Model, r.Seconds = named("openai/whisper-small"), 30.1 }, fault.InvalidArgument, "30.1 s of audio are longer than the 30 s that the model's positions allow"},
		{"beyond Whisper's tokens", func(r *Request) { r.Model, r.Labels = named("openai/whisper-small"), ptr(int64(449)) }, fault.InvalidArgument, "449 labels are more than the 448"},
		{"tensors beyond any GPU", func(r *Request) { r.Batch, r.Seconds = 65536, 86400 }, fault.InvalidArgument, "single tensors of more than 2^42 elements"},
		{"an unknown model", func(r *Request) { r.Model = named("whisper-colossal") }, fault.NotFound, "no known model"},
		{"two models", func(r *Request) { r.Model.Folder = "here" }, fault.InvalidArgument, "2 sources"},
		{"freezing what is not there", func(r *Request) { r.Model, r.FreezeFeatureEncoder = named("openai/whisper-small"), true }, fault.Unsupported, "no convolutional feature encoder"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := Request{Model: named("xls-r-300m"), Batch: 2, Seconds: 3}
			test.change(&r)
			_, err := Make(r)
			require.ErrorContains(t, err, test.message)
			require.Equal(t, test.code, fault.From(err).Code)
			require.NotEmpty(t, fault.From(err).Hint)
		})
	}
}

func TestWhisperTakesThirtySeconds(t *testing.T) {
	short, err := Make(Request{Model: named("openai/whisper-tiny"), Batch: 2, Seconds: 1, Labels: ptr(int64(20))})
	require.NoError(t, err)
	full, err := Make(Request{Model: named("openai/whisper-tiny"), Batch: 2, Seconds: 30, Labels: ptr(int64(20))})
	require.NoError(t, err)
	require.Equal(t, full.PeakAllocated, short.PeakAllocated, "every clip is padded to 30 s")
}

func TestLabelsAreAssumed(t *testing.T) {
	m, err := Read(named("openai/whisper-tiny"))
	require.NoError(t, err)
	require.Equal(t, int64(40), m.labels(10))
	require.Equal(t, int64(120), m.labels(30))
	m, err = Read(named("xls-r-300m"))
	require.NoError(t, err)
	require.Equal(t, int64(150), m.labels(10))
	e, err := m.Estimate(Request{Batch: 2, Seconds: 10})
	require.NoError(t, err)
	require.Contains(t, e.Notes, "transcripts of 150 tokens assumed")
	e, err = m.Estimate(Request{Batch: 2, Seconds: 10, Labels: ptr(int64(150))})
	require.NoError(t, err)
	require.Len(t, e.Notes, 1)
}
