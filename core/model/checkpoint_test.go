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
	small   = `{"model_type": "wav2vec2", "hidden_size": 48, "num_hidden_layers": 1, "intermediate_size": 8, "architectures": ["Wav2Vec2ForPreTraining"]}`
	foreign = `{"model_type": "moonshine", "architectures": ["MoonshineForConditionalGeneration"], "hidden_size": 288, "encoder_layers": 6, "decoder_layers": 5}`
	six     = string(safetensorsFile(`{"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}`, 24))
	two     = string(safetensorsFile(`{"b": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}}`, 4))
)

func TestFolderWithAKnownConfig(t *testing.T) {
	want, err := Profile(config(`%s`, small))
	require.NoError(t, err)
	folder := folderOf(t, map[string]string{"config.json": small, "model.safetensors": "not looked at"})
	m, err := Profile(Request{Folder: folder + "/"})
	require.NoError(t, err)
	want.Name, want.Source = "my [model]*", "folder"
	require.Equal(t, want, m)
	require.Equal(t, "Wav2Vec2ForCTC", m.ClassName)

	named := folderOf(t, map[string]string{"config.json": strings.Replace(small, "{", `{"_name_or_path": "me/mine", `, 1)})
	m, err = Profile(Request{Folder: named, Head: "ForPreTraining", FreezeFeatureEncoder: true})
	require.NoError(t, err)
	require.Equal(t, []string{"me/mine", "Wav2Vec2ForPreTraining"}, []string{m.Name, m.ClassName})
	require.Less(t, m.TrainableParameters, m.TotalParameters)
}

func TestFolderOfAnUnknownFamilyCountsItsWeights(t *testing.T) {
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
		{map[string]string{"config.json": "{"}, fault.InvalidArgument, "not a JSON object"},
		{map[string]string{"config.json": strings.Repeat(" ", maxConfigBytes+1)}, fault.InvalidArgument, "larger than 4194304 bytes"},
		{map[string]string{"config.json": strings.Replace(small, "48", "49", 1)}, fault.InvalidArgument, "hidden_size 49"},
		{map[string]string{"config.json": foreign}, fault.Unsupported, "moonshine"},
		{map[string]string{"config.json": foreign, "a.safetensors": six, "b.safetensors": two}, fault.Unsupported, "moonshine"},
		{map[string]string{"config.json": foreign, "model.safetensors": empty}, fault.InvalidArgument, "hold 0 parameters"},
		{map[string]string{"config.json": foreign, "model.safetensors": six[:40]}, fault.Corrupt, "model.safetensors"},
		{map[string]string{"config.json": foreign, "model.safetensors.index.json": `{"weight_map": {"w": "gone.safetensors"}}`}, fault.NotFound, "gone.safetensors"},
		{map[string]string{"config.json": foreign, "model.safetensors.index.json": `{"weight_map": {"w": "../up.safetensors"}}`}, fault.Corrupt, "../up.safetensors"},
		{map[string]string{"config.json": foreign, "model.safetensors.index.json": `{"weight_map": {"w": ".."}}`}, fault.Corrupt, `".."`},
		{map[string]string{"config.json": foreign, "model.safetensors.index.json": `{"weight_map": 1}`}, fault.Corrupt, "index.json"},
		{map[string]string{"config.json": strings.Replace(foreign, "288", `"288"`, 1), "model.safetensors": six}, fault.InvalidArgument, "hidden_size"},
	} {
		_, err := Profile(Request{Folder: folderOf(t, c.files)})
		requireFault(t, err, c.code, c.message)
	}
	_, err := Profile(Request{Folder: filepath.Join(t.TempDir(), "absent")})
	requireFault(t, err, fault.NotFound, "absent")
	_, err = Profile(Request{Folder: folderOf(t, map[string]string{"config.json": foreign, "model.safetensors": six}), Head: "ForCTC"})
	requireFault(t, err, fault.Unsupported, "head")
}

func TestAPipeDoesNotBlock(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, syscall.Mkfifo(filepath.Join(folder, "config.json"), 0o600))
	_, err := Profile(Request{Folder: folder})
	requireFault(t, err, fault.InvalidArgument, "regular file")
}
