"""Embeddings through OpenAI's own package and LangChain's, unchanged.

    check_embeddings.py BASE_URL MODEL CHAT_MODEL     CHAT_MODEL makes text alone
"""

import array
import math
import sys

import langchain_openai
import openai
import tiktoken

TEXTS = ["RDMA moves memory between machines.", "A cake needs flour, eggs and sugar.",
         "RDMA moves memory between machines.", "Köln liegt am Rhein. 🚂"]


def length(vector):
    return math.sqrt(sum(x * x for x in vector))


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b))


def refused(call):
    try:
        call()
    except openai.BadRequestError as error:
        return error
    raise AssertionError("it was not refused")


def check_client(client, model, chat_model):
    answer = client.embeddings.create(model=model, input=TEXTS)  # the client asks for base64
    assert [one.index for one in answer.data] == [0, 1, 2, 3] and answer.model == model
    vectors = [one.embedding for one in answer.data]
    assert all(abs(length(vector) - 1) < 1e-5 for vector in vectors)
    assert vectors[0] == vectors[2], "the same text has other numbers beside others"
    assert cosine(vectors[0], vectors[1]) < 0.9999
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > len(TEXTS)
    plain = client.embeddings.create(model=model, input=TEXTS[3], encoding_format="float")
    # Shorter decimals mean the same float32.
    assert list(array.array("f", plain.data[0].embedding)) == vectors[3], "floats and base64 differ"
    cut = client.embeddings.create(model=model, input=TEXTS[0], dimensions=16).data[0].embedding
    assert len(cut) == 16 and abs(length(cut) - 1) < 1e-5
    assert cosine(cut, vectors[0][:16]) > 0.9999 * length(vectors[0][:16])
    many = client.embeddings.create(model=model, input=[f"text {i}" for i in range(200)])
    assert len(many.data) == 200 and many.data[7].embedding == client.embeddings.create(
        model=model, input="text 7").data[0].embedding
    tokens = client.embeddings.create(model=model, input=[[5, 6, 7], [8]])
    assert len(tokens.data) == 2 and tokens.usage.prompt_tokens == 4
    for bad, param in (({"input": ""}, "input"), ({"input": []}, "input"),
                       ({"input": ["a", "word " * 20000]}, "input"),
                       ({"input": "a", "dimensions": 100000}, "dimensions")):
        error = refused(lambda: client.embeddings.create(model=model, **bad))
        assert error.param == param, (bad.keys(), error)
        if "word" in str(bad["input"]):
            assert error.code == "context_length_exceeded" and "input[1]" in error.message, error
    error = refused(lambda: client.embeddings.create(model=chat_model, input="a"))
    assert error.code == "model_has_no_embeddings" and error.param == "model", error
    return vectors


def check_langchain(base_url, model, vectors):
    # tiktoken would fetch its tables from the network; bytes are tokens of every model here.
    tiktoken.registry.ENCODINGS["cl100k_base"] = tiktoken.Encoding(
        "cl100k_base", pat_str=r"\S+|\s+", mergeable_ranks={bytes([i]): i for i in range(256)},
        special_tokens={})
    asked = {"base_url": base_url, "api_key": "unused", "model": model, "max_retries": 0}
    by_text = langchain_openai.OpenAIEmbeddings(check_embedding_ctx_length=False, **asked)
    assert by_text.embed_documents(TEXTS) == vectors
    assert by_text.embed_query(TEXTS[1]) == vectors[1]
    by_tokens = langchain_openai.OpenAIEmbeddings(check_embedding_ctx_length=True, **asked)
    vectors = by_tokens.embed_documents(TEXTS[:2])
    assert all(abs(length(vector) - 1) < 1e-5 for vector in vectors)


def main(base_url, model, chat_model):
    client = openai.OpenAI(base_url=base_url, api_key="unused", max_retries=0, timeout=120)
    vectors = check_client(client, model, chat_model)
    check_langchain(base_url, model, vectors)
    print("openai package, langchain-openai: embeddings of texts and tokens, base64, dimensions")


main(*sys.argv[1:])
