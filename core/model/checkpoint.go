package model

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-json"

	"github.com/asrconfig/asrconfig-go/core/fault"
	"github.com/asrconfig/asrconfig-go/core/profile"
)

const (
	maxConfigBytes = 4 << 20  // a published config.json takes 2 to 10 kB
	maxIndexBytes  = 64 << 20 // of model.safetensors.index.json: a line per tensor
	maxShards      = 1024
)

// named is the part of a config that every kind of model has.
type named struct {
	Architectures   []string `json:"architectures"`
	ModelType       string   `json:"model_type"`
	Name            string   `json:"_name_or_path"`
	HiddenSize      *int     `json:"hidden_size"`
	DModel          *int     `json:"d_model"`
	NumHiddenLayers *int     `json:"num_hidden_layers"`
	EncoderLayers   *int     `json:"encoder_layers"`
	DecoderLayers   *int     `json:"decoder_layers"`
}

// fromFolder counts the headers of the weight files: all parameters as trainable, since the files
// do not say.
func fromFolder(r Request) (profile.Model, error) {
	config, err := folderConfig(r.Folder)
	if err != nil {
		return profile.Model{}, inFolder(err, r.Folder)
	}
	files, err := weightFiles(r.Folder)
	if err == nil && len(files) == 0 {
		err = fault.New(fault.Unsupported,
			"pip install torch transformers, with which the model is built from its config and "+
				"counted; or save its weights there",
			"there are no weights to count")
	}
	if err != nil {
		return profile.Model{}, inFolder(err, r.Folder)
	}
	if r.FreezeFeatureEncoder {
		return profile.Model{}, fault.New(fault.Unsupported, "pass the live module",
			"weights are counted as they are, without freeze_feature_encoder")
	}
	var sum weights
	for _, file := range files {
		one, err := fileWeights(filepath.Join(r.Folder, file))
		if err != nil {
			return profile.Model{}, inFolder(err, filepath.Join(r.Folder, file))
		}
		sum.elements, sum.factored = sum.elements+one.elements, sum.factored+one.factored
	}
	if sum.elements == 0 || sum.elements > maxElements {
		return profile.Model{}, fault.New(fault.InvalidArgument, "pass the live module",
			"the weights in %s hold %d parameters; the range is 1 to 2^50", r.Folder, sum.elements)
	}
	adafactor := float32Bytes * int64(sum.factored)
	return fromCounts(Counts{Total: int64(sum.elements),
		AdafactorStateBytes: &adafactor, ClassName: strings.Join(config.Architectures, ", "),
		Architecture: config.ModelType, HiddenSize: cmp.Or(config.HiddenSize, config.DModel),
		Layers: config.layers(), Name: cmp.Or(config.Name, filepath.Base(filepath.Clean(r.Folder))),
		Source: "folder"})
}

func (n named) layers() *int {
	if n.EncoderLayers == nil || n.DecoderLayers == nil {
		return n.NumHiddenLayers
	}
	sum := *n.EncoderLayers + *n.DecoderLayers
	return &sum
}

func folderConfig(folder string) (config named, err error) {
	raw, err := readBounded(filepath.Join(folder, "config.json"), maxConfigBytes)
	if err != nil {
		return config, err
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return config, fault.Wrap(err, fault.InvalidArgument,
			"save the model there: save_pretrained", "config.json is not a transformers config")
	}
	return config, nil
}

// inFolder adds the folder's name to an error.
func inFolder(err error, folder string) error {
	failure := fault.From(err)
	return fault.Wrap(err, failure.Code, failure.Hint, "reading the model folder %s", folder)
}

// weightFiles lists the files of the model in transformers' order of preference: model.safetensors,
// the shards of the index, else the only *.safetensors there is (several may be language adapters).
// Empty when there are none.
func weightFiles(folder string) ([]string, error) {
	if _, err := os.Stat(filepath.Join(folder, "model.safetensors")); err == nil {
		return []string{"model.safetensors"}, nil
	}
	raw, err := readBounded(filepath.Join(folder, "model.safetensors.index.json"), maxIndexBytes)
	switch {
	case err == nil:
		return shards(raw)
	case fault.From(err).Code != fault.NotFound:
		return nil, err
	}
	files, err := fs.Glob(os.DirFS(folder), "*.safetensors")
	if len(files) != 1 {
		return nil, err
	}
	return files, err
}

func shards(raw []byte) ([]string, error) {
	var listing struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(raw, &listing); err != nil {
		return nil, fault.Wrap(err, fault.Corrupt, "save or download the weights again",
			"model.safetensors.index.json")
	}
	var files []string
	for _, file := range listing.WeightMap {
		if !slices.Contains(files, file) {
			files = append(files, file)
		}
		if file == ".." || filepath.Base(file) != file || len(files) > maxShards {
			return nil, fault.New(fault.Corrupt, "save or download the weights again",
				"model.safetensors.index.json names %q; it may name up to %d files beside it",
				fault.Shorten(file), maxShards)
		}
	}
	return files, nil
}

func fileWeights(path string) (weights, error) {
	file, size, err := openFile(path)
	if err != nil {
		return weights{}, err
	}
	defer file.Close()
	return readHeader(file, size)
}

func openFile(path string) (file *os.File, size int64, err error) {
	info, err := os.Stat(path)
	if err == nil && info.Mode().IsRegular() {
		file, err = os.Open(path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, fault.New(fault.NotFound,
			"pass the folder that save_pretrained wrote, with config.json in it",
			"there is no file %s", path)
	case err != nil:
		return nil, 0, fault.Wrap(err, fault.InvalidArgument, "check the path and its permissions",
			"opening")
	case file == nil: // a pipe would block
		return nil, 0, fault.New(fault.InvalidArgument,
			"pass the folder that save_pretrained wrote", "%s is not a regular file", path)
	}
	return file, info.Size(), nil
}

func readBounded(path string, limit int64) ([]byte, error) {
	file, _, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, limit+1))
	switch {
	case err != nil:
		return nil, fault.Wrap(err, fault.Corrupt, "check the file", "reading %s", path)
	case int64(len(raw)) > limit:
		return nil, fault.New(fault.InvalidArgument, "check that it is the right file",
			"%s is larger than %d bytes", path, limit)
	}
	return raw, nil
}
