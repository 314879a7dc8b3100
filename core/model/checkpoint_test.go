package model

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asrconfig/asrconfig-go/core/fault"
)

func folderOf(t *testing.T, files map[string]string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "my [model]*")
	require.NoError(t, os.Mkdir(folder, 0o700))
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	return folder
}

var (
	foreign = `{"model_type": "moonshine", "architectures": ["MoonshineForConditionalGeneration"], "hidden_size": 288, "encoder_layers": 6, "decoder_layers": 5}`
	six     = string(safetensorsFile(`{"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}`, 24))
	two     = string(safetensorsFile(`{"b": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}}`, 4))
)

func TestTheNameOfAFolder(t *testing.T) {
	m, err := Profile(Request{Folder: folderOf(t, map[string]string{"config.json": foreign, "model.safetensors": six}) + "/"})
	require.NoError(t, err)
	require.Equal(t, "my [model]*", m.Name)
	m, err = Profile(Request{Folder: folderOf(t, map[string]string{"config.json": strings.Replace(foreign, "{", `{"_name_or_path": "me/mine", `, 1), "model.safetensors": six})})
	require.NoError(t, err)
	require.Equal(t, "me/mine", m.Name)
}

func TestFoldersAreCountedByTheirWeights(t *testing.T) {
	index := `{"metadata": {"total_size": 28}, "weight_map": {"w": "one.safetensors", "b": "two.safetensors"}}`
	for _, c := range []struct {
		files    map[string]string
		elements int64
	}{
		{map[string]string{"model.safetensors": six, "adapter.eng.safetensors": two}, 6},
		{map[string]string{"model.safetensors.index.json": index, "one.safetensors": six, "two.safetensors": two, "three.safetensors": six}, 8},
		{map[string]string{"weights.safetensors": two}, 2},
	} {
		c.files["config.json"] = foreign
		m, err := Profile(Request{Folder: folderOf(t, c.files)})
		require.NoError(t, err)
		require.Equal(t, c.elements, m.TotalParameters)
		require.Equal(t, c.elements, m.TrainableParameters)
		require.Equal(t, []string{"moonshine", "MoonshineForConditionalGeneration", "folder"}, []string{m.Architecture, m.ClassName, m.Source})
		require.Equal(t, []int{288, 11}, []int{*m.HiddenSize, *m.Layers})
	}
	m, err := Profile(Request{Folder: folderOf(t, map[string]string{"config.json": `{"model_type": "x", "num_hidden_layers": 3}`, "model.safetensors": six})})
	require.NoError(t, err)
	require.Nil(t, m.HiddenSize)
	require.Equal(t, 3, *m.Layers)
	require.Equal(t, int64(4*(2+3)), m.OptimizerBytes["adafactor"])
}

func TestFoldersThatCannotBeCounted(t *testing.T) {
	empty := string(safetensorsFile(`{}`, 0))
	for _, c := range []struct {
		files   map[string]string
		code    fault.Code
		message string
	}{
		{nil, fault.NotFound, "config.json"},
		{map[string]string{"config.json": "{"}, fault.InvalidArgument, "not a transformers config"},
		{map[string]string{"config.json": strings.Repeat(" ", maxConfigBytes+1)}, fault.InvalidArgument, "larger than 4194304 bytes"},
		{map[string]string{"config.json": foreign}, fault.Unsupported, "no weights to count"},
		{map[string]string{"config.json": foreign, "a.safetensors": six, "b.safetensors": two}, fault.Unsupported, "no weights to count"},
		{map[string]string{"config.json": foreign, "model.safetensors": empty}, fault.InvalidArgument, "hold 0 parameters"},
		{map[string]string{"config.json": foreign, "model.safetensors": six[:40]}, fault.Corrupt, "model.safetensors"},
		{map[string]string{"config.json": foreign, "model.safetensors.index.json": `{"weight_map": {"w": "gone.safetensors"}}`}, fault.NotFound, "gone.safetensors"},
		{map[string]string{"config.json": foreign, "model.safetensors.index.json": `{"weight_map": {"w": "../up.safetensors"}}`}, fault.Corrupt, "../up.safetensors"},
		{map[string]string{"config.json": foreign, "model.safetensors.index.json": `{"weight_map": {"w": ".."}}`}, fault.Corrupt, `".."`},
		{map[string]string{"config.json": foreign, "model.safetensors.index.json": `{"weight_map": 1}`}, fault.Corrupt, "index.json"},
		{map[string]string{"config.json": strings.Replace(foreign, "288", `"288"`, 1), "model.safetensors": six}, fault.InvalidArgument, "not a transformers config"},
	} {
		_, err := Profile(Request{Folder: folderOf(t, c.files)})
		requireFault(t, err, c.code, c.message)
	}
	_, err := Profile(Request{Folder: filepath.Join(t.TempDir(), "absent")})
	requireFault(t, err, fault.NotFound, "absent")
	_, err = Profile(Request{Folder: folderOf(t, map[string]string{"config.json": foreign, "model.safetensors": six}), FreezeFeatureEncoder: true})
	requireFault(t, err, fault.Unsupported, "freeze_feature_encoder")
}

func TestAPipeDoesNotBlock(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(folder, "config.json"), 0o600))
	_, err := Profile(Request{Folder: folder})
	requireFault(t, err, fault.InvalidArgument, "regular file")
}
