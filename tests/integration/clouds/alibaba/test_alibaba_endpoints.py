"""The hosts of Alibaba Cloud's APIs against those of the products' own SDKs."""

import importlib

import pytest
from alibabacloud_tea_openapi.utils_models import Config

from gpuwatch.clouds.alibaba.client import PRODUCTS, host_of

SDKS = {
    "cms": "cms20190101",
    "ecs": "ecs20140526",
    "ess": "ess20220222",
    "vpc": "vpc20160428",
    "sts": "sts20150401",
    "ram": "ram20150501",
}
# The public regions of the console.
REGIONS = (
    *("cn-qingdao", "cn-beijing", "cn-zhangjiakou", "cn-huhehaote", "cn-wulanchabu", "cn-hangzhou", "cn-shanghai"),
    *("cn-nanjing", "cn-fuzhou", "cn-wuhan-lr", "cn-shenzhen", "cn-heyuan", "cn-guangzhou", "cn-chengdu"),
    *("cn-hongkong", "ap-southeast-1", "ap-southeast-3", "ap-southeast-5", "ap-southeast-6", "ap-southeast-7"),
    *("ap-northeast-1", "ap-northeast-2", "us-east-1", "us-west-1", "na-south-1", "eu-central-1", "eu-west-1"),
    *("me-east-1", "me-central-1"),
)


def test_every_product_is_compared() -> None:
    """A new one would be tried by no test."""
    assert set(SDKS) == set(PRODUCTS)


@pytest.mark.parametrize("product", sorted(SDKS))
def test_each_region_is_asked_where_the_sdk_would_ask(product: str) -> None:
    """A wrong host would be a region without an answer."""
    client = importlib.import_module(f"alibabacloud_{SDKS[product]}.client").Client
    key = {"access_key_id": "id", "access_key_secret": "a secret"}

    # RAM is one service for all regions; its SDK makes up hosts for those that are newer than itself.
    for region in REGIONS if product != "ram" else REGIONS[:1]:
        assert host_of(product, region) == client(Config(region_id=region, **key))._endpoint, region
