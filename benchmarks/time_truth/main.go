// Command time_truth holds the kernel-time model against step times that others measured on GPUs: truths/ has the points with their sources.
//
//	go run ./benchmarks/time_truth            prints results.md
//	go run ./benchmarks/time_truth -points    every point, too
package main

import (
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
)

func main() {
	points := flag.Bool("points", false, "print every point")
	flag.Parse()
	if err := run(*points); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(each bool) error {
	fp32, squad, err := truths()
	if err != nil {
		return err
	}
	results, err := fp32.predict()
	if err != nil {
		return err
	}
	questions, err := squad.predict()
	if err != nil {
		return err
	}
	if each {
		results.print()
		questions.print()
	}
	fmt.Print("# Step times measured by others against the kernel-time model\n\nMade by `go run ./benchmarks/time_truth > benchmarks/time_truth/results.md`; what it assumes is in [the fit and the points](README.md).\n\n")
	fmt.Printf("## One iteration in float32, %d points\n\n%s\n", len(results), results.beside("NeuSight", "Habitat", "roofline"))
	fmt.Printf("## BERT-base on SQuAD, %d points\n\n%s\n", len(questions), questions.beside("roofline"))
	fmt.Printf("## Bounds\n\nfloat32: %s. SQuAD: %s.\n\n", results.bounds(), questions.bounds())
	fmt.Printf("## One measured model predicts another on the same card\n\n%s", results.transfers())
	return nil
}

//go:embed truths/transformers_fp32.json
var transformersJSON []byte

//go:embed truths/bert_base_squad.json
var squadJSON []byte

//go:embed truths/models.json
var modelsJSON []byte

//go:embed truths/cards.json
var cardsJSON []byte

func decode(name string, from []byte, to any) error {
	if err := json.Unmarshal(from, to); err != nil {
		return fmt.Errorf("reading truths/%s.json: %w", name, err)
	}
	return nil
}

func truths() (transformers, questionAnswering, error) {
	var fp32 transformers
	var squad questionAnswering
	models, cards := map[string]shape{}, map[string]card{}
	for _, file := range []struct {
		name string
		from []byte
		to   any
	}{{"transformers_fp32", transformersJSON, &fp32}, {"bert_base_squad", squadJSON, &squad}, {"models", modelsJSON, &models}, {"cards", cardsJSON, &cards}} {
		if err := decode(file.name, file.from, file.to); err != nil {
			return fp32, squad, err
		}
	}
	fp32.models, squad.models, fp32.cards, squad.cards = models, models, cards, cards
	return fp32, squad, nil
}
