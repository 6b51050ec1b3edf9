// Tokenises texts by llama.cpp. Reads a list of jobs {model, texts} as JSON from standard input,
// writes for each the ids of every text, with and without special tokens taken from the text, and
// the tokens that end a generation. The package's folder is the first argument.
import path from "node:path";
import {pathToFileURL} from "node:url";

const entry = path.join(process.argv[2], "node_modules", "node-llama-cpp", "dist", "index.js");
const {getLlama} = await import(pathToFileURL(entry).href);

let input = "";
for await (const chunk of process.stdin) input += chunk;

const llama = await getLlama({gpu: false, build: "never", logLevel: "disabled", maxThreads: 1});
const out = [];
for (const {model: modelPath, vocabSize, texts} of JSON.parse(input)) {
    const model = await llama.loadModel({modelPath, vocabOnly: true});
    const eog = [];
    for (let id = 0; id < vocabSize; id++) if (model.isEogToken(id)) eog.push(id);
    out.push({
        eog,
        add_bos: model.tokens.shouldPrependBosToken,
        cases: texts.map((text) => ({
            text,
            plain: model.tokenize(text, false),
            special: model.tokenize(text, true)
        }))
    });
    await model.dispose();
}
const text = JSON.stringify({llama_cpp: llama.llamaCppRelease.release, out});
process.stdout.write(text, () => process.exit(0));
