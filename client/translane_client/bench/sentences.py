"""Built-in sentences, for a load without a file of texts: everyday sentences of up to 25 words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

BUILT_IN: Mapping[str, Sequence[str]] = {
    "zh": (
        "今天下午我们去公园散步吧。",
        "这家饭馆的面条很好吃。",
        "你能告诉我去火车站怎么走吗？",
        "他每天早上六点起床跑步。",
        "我昨天晚上没有睡好觉。",
        "图书馆星期一不开门。",
        "她的汉语说得比我好得多。",
        "如果明天不下雨，我们就去爬山。",
        "请把窗户关上，外面太冷了。",
        "我弟弟在大学学习数学。",
        "我们已经等了半个多小时，公共汽车还没有来。",
        "这本书我看了两遍，每次都有新的收获。",
        "别担心，一切都会好的。",
        "医生让他多喝水，少抽烟。",
        "你家有几口人？",
        "因为路上堵车，所以他开会迟到了。",
        "谢谢。",
        "这件衣服太贵了，能便宜一点吗？",
        "孩子们在院子里一边唱歌一边跳舞。",
        "我忘了带钥匙，只好在门口等我妻子回来。",
    ),
    "en": (
        "Let's go for a walk in the park this afternoon.",
        "The noodles in this restaurant are very good.",
        "Could you tell me how to get to the station?",
        "He gets up at six every morning and goes running.",
        "I did not sleep well last night.",
        "The library is closed on Mondays.",
        "She speaks Chinese much better than I do.",
        "If it does not rain tomorrow, we will climb the mountain.",
        "Please close the window, it is too cold outside.",
        "My younger brother studies mathematics at university.",
        "We have been waiting for more than half an hour, and the bus has still not come.",
        "I have read this book twice, and each time I found something new in it.",
        "Do not worry, everything will be fine.",
        "The doctor told him to drink more water and to smoke less.",
        "How many people are there in your family?",
        "Because of the traffic he was late for the meeting.",
        "Thank you.",
        "This coat is too expensive; could you make it a little cheaper?",
        "The children are singing and dancing in the yard.",
        "I forgot my keys and had to wait at the door until my wife came back.",
    ),
    "de": (
        "Lass uns heute Nachmittag im Park spazieren gehen.",
        "Die Nudeln in diesem Restaurant sind sehr gut.",
        "Können Sie mir sagen, wie ich zum Bahnhof komme?",
        "Er steht jeden Morgen um sechs auf und geht laufen.",
        "Ich habe letzte Nacht nicht gut geschlafen.",
        "Die Bibliothek ist montags geschlossen.",
        "Sie spricht viel besser Chinesisch als ich.",
        "Wenn es morgen nicht regnet, steigen wir auf den Berg.",
        "Bitte mach das Fenster zu, draußen ist es zu kalt.",
        "Mein jüngerer Bruder studiert Mathematik.",
        "Wir warten schon über eine halbe Stunde, und der Bus ist immer noch nicht da.",
        "Ich habe dieses Buch zweimal gelesen und jedes Mal etwas Neues darin gefunden.",
        "Keine Sorge, alles wird gut.",
        "Der Arzt hat ihm geraten, mehr Wasser zu trinken und weniger zu rauchen.",
        "Wie viele seid ihr in der Familie?",
        "Wegen des Verkehrs kam er zu spät zur Besprechung.",
        "Danke.",
        "Dieser Mantel ist zu teuer; geht es etwas billiger?",
        "Die Kinder singen und tanzen im Hof.",
        "Ich hatte meine Schlüssel vergessen und musste vor der Tür warten, bis meine Frau zurückkam.",
    ),
}
"""Language (the first subtag of a BCP-47 tag) → sentences."""


def built_in(languages: Sequence[str]) -> Sequence[str]:
    """The sentences in the first of the languages (BCP-47 tags) that has any; none where no language has."""
    return next((BUILT_IN[tag] for tag in (each.split("-")[0] for each in languages) if tag in BUILT_IN), ())
